// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/gpu_memory.h"
#include "stator/operator/names.h"
#include "stator/operator/render.h"
#include "stator/operator/type_defaults.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kCandidate = "nvidia.com/dynamo-checkpoint-restore-candidate";
constexpr std::string_view kCheckpointName = "nvidia.com/dynamo-checkpoint-name";
constexpr std::string_view kStartupPolicy = "nvidia.com/dynamo-checkpoint-startup-policy";
constexpr std::string_view kRestoreTarget = "nvidia.com/snapshot-is-restore-target";
constexpr std::string_view kArtifactVersion = "nvidia.com/snapshot-artifact-version";
constexpr std::string_view kTargets = "nvidia.com/snapshot-target-containers";
constexpr std::string_view kControlVolume = "snapshot-control";
constexpr std::string_view kControlPath = "/snapshot-control";
constexpr std::string_view kSeccompProfile = "profiles/block-iouring.json";
constexpr int64_t kDeadline = 3600;
constexpr int kJobRest = 300;         ///< a finished job stays so many seconds
constexpr int kRestoreProbes = 1800;  ///< of a second each

Value* find_container(Value& pod_spec, std::string_view name) {
  return kube::find_named(pod_spec.find("containers"), name);
}

void set_named(Value& list, Value entry) {
  if (Value* own = kube::find_named(&list, entry.text_at({"name"}))) {
    *own = std::move(entry);
  } else {
    list.push_back(std::move(entry));
  }
}

/// Where the process and the agent leave each other notes.
void add_control_volume(Value& pod_spec, Value& container) {
  Value volume = Value::object();
  volume["name"] = kControlVolume;
  volume["emptyDir"] = Value::object();
  set_named(pod_spec["volumes"], std::move(volume));
  Value mount = Value::object();
  mount["name"] = kControlVolume;
  mount["mountPath"] = kControlPath;
  mount["subPath"] = container.text_at({"name"});
  set_named(container["volumeMounts"], std::move(mount));
  set_named(container["env"], env_entry("DYN_SNAPSHOT_CONTROL_DIR", kControlPath));
}

void forbid_io_uring(Value& pod_spec) {
  Value& profile = kube::at(pod_spec, {"securityContext", "seccompProfile"});
  profile = Value::object();
  profile["type"] = "Localhost";
  profile["localhostProfile"] = kSeccompProfile;  // io_uring cannot be captured
}

std::string target_of(const Value& checkpoint) {
  const std::string_view name = checkpoint.text_at({"spec", "job", "targetContainerName"});
  return name.empty() ? "main" : std::string(name);
}

std::string id_of(const Value& checkpoint) {
  const std::string_view stored = checkpoint.text_at({"status", "checkpointID"});
  if (!stored.empty()) {
    return std::string(stored);
  }
  const std::string_view label = kube::label_of(checkpoint, kLabelSnapshotId);
  return label.empty()
             ? kube::sha256_hex(json::to_text(kube::sorted(checkpoint.at("spec")))).substr(0, 16)
             : std::string(label);
}

Value file_probe(std::string_view file) {
  Value probe = Value::object();
  probe["exec"]["command"].push_back("cat");
  probe["exec"]["command"].push_back(fmt::format("{}/{}", kControlPath, file));
  probe["periodSeconds"] = 1;
  return probe;
}

Value make_job(const Value& checkpoint, const std::string& id, const std::string& name) {
  const Value& asked = checkpoint.at("spec").at("job");
  Value pod = asked.at("podTemplateSpec");
  const std::string target = target_of(checkpoint);
  Value& labels = kube::at(pod, {"metadata", "labels"});
  labels[kLabelSnapshotSource] = "true";
  labels[kLabelSnapshotId] = id;
  labels[kLabelSnapshotOwner] = label_value(kube::name_of(checkpoint).name);
  Value& annotations = kube::at(pod, {"metadata", "annotations"});
  annotations[kArtifactVersion] = "1";
  annotations[kTargets] = target;
  annotations["sidecar.istio.io/inject"] = "false";
  annotations["linkerd.io/inject"] = "disabled";
  Value& spec = pod["spec"];
  spec["restartPolicy"] = "Never";
  forbid_io_uring(spec);
  if (Value* container = find_container(spec, target)) {
    add_control_volume(spec, *container);
    container->erase("livenessProbe");
    container->erase("startupProbe");
    (*container)["readinessProbe"] = file_probe("ready-for-snapshot");
  }
  Value job = kube::make_object(kube::resource_of("Job"), {kube::name_of(checkpoint).space, name});
  job["metadata"]["labels"][kLabelSnapshotId] = id;
  job["metadata"]["labels"][kLabelSnapshotOwner] = label_value(kube::name_of(checkpoint).name);
  job["spec"]["backoffLimit"] = 0;
  job["spec"]["ttlSecondsAfterFinished"] = kJobRest;
  job["spec"]["activeDeadlineSeconds"] = kube::int_at(asked, {"activeDeadlineSeconds"}, kDeadline);
  job["spec"]["template"] = std::move(pod);
  kube::set_owner(job, checkpoint);
  return job;
}

bool holds(const Value& object, std::string_view type) {
  const auto& conditions = object.at("status").at("conditions").elements();
  return std::ranges::any_of(conditions, [&](const Value& each) {
    return each.text_at({"type"}) == type && each.text_at({"status"}) == "True";
  });
}

std::string message_of(const Value& object, std::string_view type) {
  for (const Value& each : object.at("status").at("conditions").elements()) {
    if (each.text_at({"type"}) == type) {
      return std::string(each.text_at({"message"}));
    }
  }
  return {};
}

Value make_snapshot(const Value& checkpoint, const std::string& id, const Value& pod) {
  const kube::ObjectName own = kube::name_of(checkpoint);
  Value snapshot = kube::make_object(kube::resource_of("PodSnapshot"), own);
  snapshot["metadata"]["labels"][kLabelSnapshotOwner] = label_value(own.name);
  snapshot["metadata"]["labels"][kLabelSnapshotId] = id;
  Value& reference = kube::at(snapshot, {"spec", "source", "podRef"});
  reference["name"] = kube::name_of(pod).name;
  reference["uid"] = kube::uid_of(pod);
  reference["containers"].push_back(target_of(checkpoint));
  kube::set_owner(snapshot, checkpoint);
  return snapshot;
}

/// Writes the phase; what it says is told once.
class Report {
 public:
  Report(const CheckpointView& view, Plan& plan) : plan_(plan) {
    status_ =
        view.checkpoint.at("status").is_object() ? view.checkpoint.at("status") : Value::object();
  }
  Value& operator[](std::string_view key) { return status_[key]; }

  void finish(std::string_view phase, std::string_view message) {
    if (status_.text_at({"phase"}) != phase) {
      plan_.events.push_back({phase == "Failed", fmt::format("Checkpoint{}", phase),
                              message.empty() ? std::string(phase) : std::string(message)});
    }
    status_["phase"] = phase;
    status_["message"] = message;
    plan_.status = std::move(status_);
  }

 private:
  Plan& plan_;
  Value status_;
};

}  // namespace

std::optional<CheckpointUse> read_checkpoint(const Graph& graph, const Component& component) {
  const Value* asked = component.spec().find_at({"experimental", "checkpoint"});
  if (asked == nullptr || !asked->is_object() || !kube::bool_at(*asked, {"enabled"}, true)) {
    return std::nullopt;
  }
  CheckpointUse use;
  use.waits = asked->text_at({"startupPolicy"}) == "WaitForCheckpoint";
  use.is_retained = asked->text_at({"deletionPolicy"}) == "Retain";
  if (const std::string_view target = asked->text_at({"targetContainerName"}); !target.empty()) {
    use.target = target;
  }
  if (const std::string_view reference = asked->text_at({"checkpointRef"}); !reference.empty()) {
    use.name = reference;
    return use;
  }
  use.is_own = true;
  // Other workers need another checkpoint; the number of them, or when they start, does not count.
  Value made_of = component.spec();
  for (const std::string_view key : {"replicas", "scalingAdapter", "minAvailable"}) {
    made_of.erase(key);
  }
  for (const std::string_view key : {"startupPolicy", "deletionPolicy"}) {
    kube::at(made_of, {"experimental", "checkpoint"}).erase(key);
  }
  use.name = fmt::format("checkpoint-{}",
                         kube::sha256_hex(fmt::format("{}/{}/{}", graph.space(), graph.name(),
                                                      json::to_text(kube::sorted(made_of))))
                             .substr(0, 16));
  return use;
}

Value make_checkpoint(const PodContext& context, const CheckpointUse& use) {
  Value made =
      kube::make_object(kube::resource_of("DynamoCheckpoint"), {context.graph.space(), use.name});
  Value& labels = made["metadata"]["labels"];
  labels[kLabelGraph] = label_value(context.graph.name());
  labels[kLabelComponent] = context.component.name();
  labels[kLabelSnapshotId] = use.name.substr(use.name.find('-') + 1);
  Value pod = make_pod_template(context);
  if (Value* own = pod["metadata"].find("labels")) {
    // Nobody finds the pod that is captured: it serves no one.
    for (const std::string_view key : {kLabelSelector, kLabelDiscoveryEnabled, kLabelComponentClass,
                                       kLabelComponentType, kLabelCandidate, kLabelBaseModelHash}) {
      own->erase(key);
    }
  }
  pod["metadata"].erase("annotations");
  Value& job = made["spec"]["job"];
  job = Value::object();
  const Value& asked = context.component.spec().at("experimental").at("checkpoint").at("job");
  for (const json::Member& member : asked.members()) {
    job[member.key] = member.value;
  }
  job["targetContainerName"] = use.target;
  job["podTemplateSpec"] = std::move(pod);
  return made;
}

void mark_restore_candidate(const PodContext& context, Value& labels, Value& annotations) {
  const auto use = read_checkpoint(context.graph, context.component);
  if (!use || context.role == Role::kWorker) {
    return;
  }
  labels[kLabelCandidate] = "true";
  annotations[kCandidate] = "true";
  annotations[kCheckpointName] = use->name;
  annotations[kStartupPolicy] = use->waits ? "WaitForCheckpoint" : "Immediate";
  annotations[kTargets] = read_gpu_memory(context.component).has_shadow &&
                                  !read_gpu_memory(context.component).is_inter_pod
                              ? std::string("engine-0,engine-1")
                              : use->target;
}

std::string_view checkpoint_of_pod(const Value& pod) {
  return kube::annotation_of(pod, kCandidate) == "true" ? kube::annotation_of(pod, kCheckpointName)
                                                        : std::string_view();
}

std::optional<Value> restore_pod(const Value& pod, const Value& checkpoint) {
  if (checkpoint_of_pod(pod).empty() || checkpoint.text_at({"status", "phase"}) != "Ready") {
    return std::nullopt;
  }
  Value restored = pod;
  Value& labels = kube::at(restored, {"metadata", "labels"});
  labels[kRestoreTarget] = "true";
  labels[kLabelSnapshotId] = id_of(checkpoint);
  Value& annotations = kube::at(restored, {"metadata", "annotations"});
  annotations[kArtifactVersion] = "1";
  const std::string targets(kube::annotation_of(pod, kTargets));
  for (const std::string_view gone : {kCandidate, kCheckpointName, kStartupPolicy}) {
    annotations.erase(gone);
  }
  Value& spec = restored["spec"];
  forbid_io_uring(spec);
  std::string_view rest = targets.empty() ? std::string_view("main") : std::string_view(targets);
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    Value* container = find_container(spec, rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (container == nullptr) {
      continue;
    }
    add_control_volume(spec, *container);
    set_named((*container)["env"], env_entry("DYN_SNAPSHOT_RESTORE_STANDBY", "1"));
    if (container->find("startupProbe") == nullptr) {
      (*container)["startupProbe"] = file_probe("restore-complete");
    }
    Value& startup = (*container)["startupProbe"];
    startup["initialDelaySeconds"] = 0;
    startup["periodSeconds"] = 1;
    startup["failureThreshold"] = kRestoreProbes;
    if (Value* readiness = container->find("readinessProbe")) {
      (*readiness)["periodSeconds"] = 1;
    }
  }
  return restored;
}

Plan plan_checkpoint(const CheckpointView& view) {
  Plan plan;
  const Value& checkpoint = view.checkpoint;
  const std::string_view phase = checkpoint.text_at({"status", "phase"});
  const bool is_over = phase == "Ready" || phase == "Failed";
  if (checkpoint.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    return plan;  // what it made goes with it
  }
  if (is_over) {
    if (view.job && phase == "Ready") {
      plan.remove.push_back({kube::resource_of("Job"), kube::name_of(*view.job),
                             std::string(kube::uid_of(*view.job))});
    }
    return plan;
  }
  Report report(view, plan);
  if (const auto admitted = admit(checkpoint, {}); !admitted) {
    report.finish("Failed", admitted.error().message());
    return plan;
  }
  const std::string id = id_of(checkpoint);
  const std::string name = fmt::format("checkpoint-job-{}-1", id);
  report["checkpointID"] = id;
  if (!view.has_agent) {
    report.finish("Pending",
                  "the cluster serves no PodSnapshots (nvidia.com): install a snapshot agent");
    return plan;
  }
  report["jobName"] = name;
  if (view.snapshot && holds(*view.snapshot, "Ready")) {
    report["createdAt"] = view.now;
    report["podSnapshotName"] = kube::name_of(*view.snapshot).name;
    report.finish("Ready", "");
    return plan;
  }
  if (view.snapshot && holds(*view.snapshot, "Failed")) {
    report.finish("Failed", message_of(*view.snapshot, "Failed"));
    return plan;
  }
  if (view.job && holds(*view.job, "Failed")) {
    report.finish("Failed", "the job failed: " + message_of(*view.job, "Failed"));
    return plan;
  }
  if (!view.job) {
    plan.create.push_back(make_job(checkpoint, id, name));
  }
  if (view.pod && holds(*view.pod, "Ready") && !view.snapshot) {
    plan.create.push_back(make_snapshot(checkpoint, id, *view.pod));
  }
  report.finish("Creating", "");
  return plan;
}

}  // namespace stator::op
