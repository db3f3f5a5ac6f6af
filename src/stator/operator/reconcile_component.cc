// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/reconcile.h"
#include "stator/operator/render.h"

namespace stator::op {
namespace {

using json::Value;

bool has_condition(const Value& object, std::string_view type) {
  const Value* conditions = object.find_at({"status", "conditions"});
  if (conditions == nullptr) {
    return false;
  }
  for (const Value& condition : conditions->elements()) {
    if (condition.text_at({"type"}) == type) {
      return condition.text_at({"status"}) == "True";
    }
  }
  return false;
}

struct WorkloadState {
  bool ready = false;
  std::string why;
  Value replicas = Value::object();
};

WorkloadState read_workload(const std::optional<Value>& workload, int64_t desired,
                            std::string_view kind, std::string_view name) {
  WorkloadState state;
  state.replicas["componentKind"] = kind;
  state.replicas["componentNames"].push_back(name);
  const auto status = [&](std::string_view key) {
    return workload ? kube::int_at(*workload, {"status", key}, 0) : 0;
  };
  const int64_t replicas = status("replicas");
  const int64_t updated = status("updatedReplicas");
  const int64_t ready = status("readyReplicas");
  const int64_t available = status("availableReplicas");
  state.replicas["replicas"] = replicas;
  state.replicas["updatedReplicas"] = updated;
  state.replicas["readyReplicas"] = ready;
  if (kind == "Deployment") {
    state.replicas["availableReplicas"] = available;
  }
  if (!workload) {
    state.why = fmt::format("{} {} is not there yet", kind, name);
    return state;
  }
  const bool is_seen = kube::int_at(*workload, {"status", "observedGeneration"}, 0) >=
                       kube::generation_of(*workload);
  const bool is_deployment = kind == "Deployment";
  const bool counts = is_deployment
                          ? updated >= desired && available >= desired && replicas == desired
                          : ready >= desired;
  state.ready = (!is_deployment || is_seen) && counts &&
                (desired == 0 || has_condition(*workload, "Available"));
  if (!state.ready) {
    state.why = fmt::format("{} {}: {} of {} replicas available", kind, name,
                            is_deployment ? available : ready, desired);
  }
  return state;
}

/// The restart that the pods of a Deployment or LeaderWorkerSet are of.
std::string_view restart_of(const Value& workload) {
  const Value* pod = workload.find_at({"spec", "template"});
  if (pod == nullptr) {
    pod = workload.find_at({"spec", "leaderWorkerTemplate", "workerTemplate"});
  }
  return pod == nullptr ? std::string_view() : kube::annotation_of(*pod, kAnnotationRestartAt);
}

/// Leaves the pods as another operator made them: its template, and what depends on it. Only as
/// long as we never wrote that template ourselves, because what we stop writing goes away.
void keep_pods(const ComponentView& view, Value& workload) {
  const bool keeps = kube::annotation_of(view.component, kAnnotationKeepsPods) == "true" &&
                     kube::annotation_of(view.component, kAnnotationRestartAt).empty() &&
                     view.workload && kube::name_of(*view.workload) == kube::name_of(workload) &&
                     kube::annotation_of(*view.workload, kAnnotationMadeBy).empty();
  if (!keeps) {
    return;
  }
  for (const std::string_view key : {"template", "selector", "leaderWorkerTemplate"}) {
    workload["spec"].erase(key);
  }
  workload["metadata"].erase("annotations");
}

Value condition(std::string_view type, bool holds, std::string_view reason,
                std::string_view message) {
  Value made = Value::object();
  made["type"] = type;
  made["status"] = holds ? "True" : "False";
  made["reason"] = reason;
  made["message"] = message;
  return made;
}

}  // namespace

Plan plan_component(const ComponentView& view, const Environment& environment) {
  Plan plan;
  const Value& stored = view.component;
  if (stored.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    return plan;  // its children go with it
  }
  const Value* before = stored.find_at({"status", "conditions"});
  Value status = Value::object();
  status["observedGeneration"] = kube::generation_of(stored);
  Value conditions = Value::array();
  const auto add = [&](Value made) {
    made["lastTransitionTime"] = view.now;
    made["observedGeneration"] = kube::generation_of(stored);
    set_condition(conditions, before, std::move(made));
  };
  const auto admitted = admit(stored, environment);
  if (!admitted) {
    add(condition("Available", false, "InvalidSpec", admitted.error().message()));
    add(condition("DynamoComponentReady", false, "InvalidSpec", admitted.error().message()));
    status["conditions"] = std::move(conditions);
    plan.status = std::move(status);
    return plan;
  }
  for (Value& child : make_component_objects(*admitted, environment)) {
    kube::set_owner(child, stored);
    const Value* graph = stored.find_at({"metadata", "ownerReferences"});
    if (graph != nullptr && kube::name_of(child).name.starts_with("dynamo-model-")) {
      child["metadata"]["ownerReferences"] = *graph;  // the components of one model share it
    }
    const std::string_view kind = child.text_at({"kind"});
    const bool once = kind == "PersistentVolumeClaim" || kind == "Secret";
    (once ? plan.create : plan.apply).push_back(std::move(child));
  }
  keep_pods(view, plan.apply.front());
  const Value& main = plan.apply.front();
  const WorkloadState state =
      read_workload(view.workload, kube::int_at(*admitted, {"spec", "replicas"}, 1),
                    main.text_at({"kind"}), kube::name_of(main).name);
  add(condition("Available", state.ready,
                state.ready ? "WorkloadAvailable" : "WorkloadNotAvailable", state.why));
  add(condition("DynamoComponentReady", state.ready,
                state.ready ? "ComponentReady" : "ComponentNotReady", state.why));
  status["conditions"] = std::move(conditions);
  status["component"] = state.replicas;
  const std::string_view mark = kube::annotation_of(stored, kAnnotationRestartAt);
  const bool is_marked =
      view.workload && restart_of(*view.workload) == mark && state.ready && !mark.empty();
  if (is_marked) {
    status["restartedAt"] = mark;
  } else if (const std::string_view old = stored.text_at({"status", "restartedAt"}); !old.empty()) {
    status["restartedAt"] = old;
  }
  plan.status = std::move(status);
  return plan;
}

}  // namespace stator::op
