// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/pod_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/gpu_memory.h"
#include "stator/operator/launch.h"
#include "stator/operator/names.h"
#include "stator/operator/type_defaults.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kTopologyPath = "/etc/dynamo/topology";
constexpr std::string_view kSharedMemoryPath = "/dev/shm";

void overlay(Value& target, const Value* from) {
  if (from != nullptr) {
    for (const json::Member& member : from->members()) {
      target[member.key] = member.value;
    }
  }
}

/// `over`'s entries, then those of `under` that share neither key with one of them.
Value merge_by(const Value* under, const Value* over, std::string_view key_a,
               std::string_view key_b) {
  Value merged = over == nullptr ? Value::array() : *over;
  if (under == nullptr) {
    return merged;
  }
  for (const Value& entry : under->elements()) {
    const bool taken =
        over != nullptr && std::ranges::any_of(over->elements(), [&](const Value& o) {
          const auto equal = [&](std::string_view key) {
            const Value* mine = entry.find(key);
            const Value* theirs = o.find(key);
            return mine != nullptr && theirs != nullptr && *mine == *theirs;
          };
          return equal(key_a) || equal(key_b);
        });
    if (!taken) {
      merged.push_back(entry);
    }
  }
  return merged;
}

/// The user's container over the type's.
Value merge_container(Value base, const Value& user, const Value* graph_env) {
  const Value own_env = user.find("env") == nullptr ? Value::array() : *user.find("env");
  const Value base_env = base.find("env") == nullptr ? Value::array() : *base.find("env");
  Value env = merge_env(base_env, graph_env == nullptr ? Value::array() : *graph_env);
  env = merge_env(env, own_env);
  Value ports = merge_by(base.find("ports"), user.find("ports"), "name", "containerPort");
  Value mounts =
      merge_by(base.find("volumeMounts"), user.find("volumeMounts"), "mountPath", "mountPath");
  const bool has_command = user.find("command") != nullptr;
  const bool has_args = user.find("args") != nullptr;
  if (has_command) {
    base.erase("args");
  }
  const Value* command = base.find("command");
  const bool is_bare_shell = command != nullptr && base.find("args") == nullptr;
  if (!has_command && !has_args && is_bare_shell) {
    base.erase("command");  // the image's own entry point
  }
  overlay(base, &user);
  base["env"] = std::move(env);
  if (ports.size() > 0) {
    base["ports"] = std::move(ports);
  }
  if (mounts.size() > 0) {
    base["volumeMounts"] = std::move(mounts);
  }
  return base;
}

void add_compilation_cache(const PodContext& context, Value& container) {
  const Value* cache = context.component.spec().find("compilationCache");
  if (cache == nullptr) {
    return;
  }
  const bool is_vllm = context.graph.backend() == "vllm";
  std::string path(cache->text_at({"mountPath"}));
  if (path.empty() && is_vllm) {
    path = "/root/.cache/vllm";
  }
  Value mount = Value::object();
  mount["name"] = cache->text_at({"pvcName"});
  mount["mountPath"] = path;
  container["volumeMounts"].push_back(std::move(mount));
  if (is_vllm) {
    Value env = Value::array();
    env.push_back(env_entry("VLLM_CACHE_ROOT", path));
    container["env"] = merge_env(env, container["env"]);
  }
}

/// Environment and volume of the transfer policy (docs/kubernetes/operator.md).
void add_transfer_policy(const PodContext& context, Value& container, Value& pod_spec,
                         Value& annotations) {
  const Value* policy =
      context.graph.object().find_at({"spec", "experimental", "kvTransferPolicy"});
  if (policy == nullptr || !context.component.is_worker()) {
    return;
  }
  const std::string domain(policy->text_at({"domain"}));
  const std::string_view enforcement = policy->text_at({"enforcement"});
  Value env = Value::array();
  env.push_back(env_entry("DYN_KV_TRANSFER_DOMAIN", domain));
  env.push_back(env_entry("DYN_KV_TRANSFER_ENFORCEMENT",
                          enforcement.empty() ? std::string_view("required") : enforcement));
  if (const Value* weight = policy->find("preferredWeight")) {
    env.push_back(env_entry("DYN_KV_TRANSFER_PREFERRED_WEIGHT", weight->text()));
  }
  env.push_back(env_entry("DYN_TOPOLOGY_ENABLED", "true"));
  env.push_back(env_entry("DYN_TOPOLOGY_MOUNT_PATH", kTopologyPath));
  container["env"] = merge_env(env, container["env"]);
  const std::string_view label_key = policy->text_at({"labelKey"});
  const std::string target = label_key.empty()
                                 ? fmt::format("nvidia.com/dynamo-topology.{}", domain)
                                 : std::string(label_key);
  if (label_key.empty()) {
    annotations[kAnnotationTopologyName] = policy->text_at({"clusterTopologyName"});
    annotations[kAnnotationTopologyDomain] = domain;
  } else {
    annotations[kAnnotationTopologyKey] = label_key;
  }
  Value item = Value::object();
  item["path"] = domain;
  item["fieldRef"]["fieldPath"] = fmt::format("metadata.labels['{}']", target);
  Value volume = Value::object();
  volume["name"] = "dynamo-topology";
  volume["downwardAPI"]["items"].push_back(std::move(item));
  pod_spec["volumes"].push_back(std::move(volume));
  Value mount = Value::object();
  mount["name"] = "dynamo-topology";
  mount["mountPath"] = kTopologyPath;
  mount["readOnly"] = true;
  container["volumeMounts"].push_back(std::move(mount));
}

void add_shared_memory(const PodContext& context, Value& container, Value& pod_spec) {
  const Value* size = context.component.spec().find("sharedMemorySize");
  const std::string text = size == nullptr ? "8Gi" : std::string(size->text());
  const bool is_users = std::ranges::any_of(
      container.at("volumeMounts").elements(),
      [](const Value& mount) { return mount.text_at({"mountPath"}) == kSharedMemoryPath; });
  if (kube::parse_quantity_milli(text).value_or(1) == 0 || is_users) {
    return;
  }
  Value volume = Value::object();
  volume["name"] = "shared-memory";
  volume["emptyDir"]["medium"] = "Memory";
  volume["emptyDir"]["sizeLimit"] = text;
  pod_spec["volumes"].push_back(std::move(volume));
  Value mount = Value::object();
  mount["name"] = "shared-memory";
  mount["mountPath"] = kSharedMemoryPath;
  container["volumeMounts"].push_back(std::move(mount));
}

/// Of entries with the same key the last one stays: an API server takes them from users, but not
/// in a server-side apply.
void drop_repeated(Value* list, std::string_view key) {
  if (list == nullptr || list->mutable_elements() == nullptr) {
    return;
  }
  auto& entries = *list->mutable_elements();
  for (size_t i = entries.size(); i-- > 0;) {
    const std::string name(entries[i].text_at({key}));
    const bool comes_again =
        !name.empty() && std::any_of(entries.begin() + static_cast<ptrdiff_t>(i) + 1, entries.end(),
                                     [&](const Value& e) { return e.text_at({key}) == name; });
    if (comes_again) {
      entries.erase(entries.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

void drop_repeated(Value& pod_spec) {
  for (const std::string_view kind : {"containers", "initContainers"}) {
    Value* containers = pod_spec.find(kind);
    if (containers == nullptr || containers->mutable_elements() == nullptr) {
      continue;
    }
    for (Value& container : *containers->mutable_elements()) {
      drop_repeated(container.find("env"), "name");
      drop_repeated(container.find("volumeMounts"), "mountPath");
    }
  }
  drop_repeated(pod_spec.find("volumes"), "name");
}

/// A mount whose name no volume has means the claim of that name.
void add_implicit_volumes(Value& pod_spec) {
  std::vector<std::string> missing;
  const auto collect = [&](const Value* containers) {
    if (containers == nullptr) {
      return;
    }
    for (const Value& container : containers->elements()) {
      const Value* mounts = container.find("volumeMounts");
      if (mounts == nullptr) {
        continue;
      }
      for (const Value& mount : mounts->elements()) {
        const std::string name(mount.text_at({"name"}));
        if (!name.empty() && kube::find_named(pod_spec.find("volumes"), name) == nullptr &&
            std::ranges::find(missing, name) == missing.end()) {
          missing.push_back(name);
        }
      }
    }
  };
  collect(pod_spec.find("containers"));
  collect(pod_spec.find("initContainers"));
  for (const std::string& name : missing) {
    Value volume = Value::object();
    volume["name"] = name;
    volume["persistentVolumeClaim"]["claimName"] = name;
    pod_spec["volumes"].push_back(std::move(volume));
  }
}

std::string service_account(const PodContext& context) {
  const std::string_view type = context.component.type();
  if (type == "planner") {
    return "planner-serviceaccount";
  }
  if (type == "epp") {
    return "epp-serviceaccount";
  }
  return context.graph.discovery() == "etcd"
             ? ""
             : label_value(fmt::format("{}-k8s-service-discovery", context.graph.name()));
}

Value epp_config_volume(const PodContext& context) {
  const Value* reference = context.component.spec().find_at({"eppConfig", "configMapRef"});
  Value volume = Value::object();
  volume["name"] = "epp-config";
  volume["configMap"]["name"] = reference == nullptr
                                    ? fmt::format("{}-epp-config", context.graph.name())
                                    : std::string(reference->text_at({"name"}));
  const std::string_view key =
      reference == nullptr ? std::string_view() : reference->text_at({"key"});
  if (!key.empty()) {
    Value item = Value::object();
    item["key"] = key;
    item["path"] = "epp-config-dynamo.yaml";
    volume["configMap"]["items"].push_back(std::move(item));
  }
  return volume;
}

void fill_pod_spec(const PodContext& context, Value& spec) {
  const auto set_if_absent = [&](std::string_view key, Value value) {
    if (spec.find(key) == nullptr) {
      spec[key] = std::move(value);
    }
  };
  set_if_absent("terminationGracePeriodSeconds", context.component.type() == "epp" ? 130 : 60);
  set_if_absent("restartPolicy", "Always");
  if (spec.find("securityContext") == nullptr) {
    spec["securityContext"]["fsGroup"] = 1000;
  }
  if (const std::string account = service_account(context); !account.empty()) {
    set_if_absent("serviceAccountName", account);
  }
}

/// Ready means more then: old pods go when the new ones get requests, not just when they could.
void add_routable_gate(const PodContext& context, Value& spec) {
  if (context.component.is_worker() && context.role != Role::kWorker &&
      has_routable_gate(context.graph, context.component)) {
    Value gate = Value::object();
    gate["conditionType"] = kRoutableCondition;
    spec["readinessGates"].push_back(std::move(gate));
  }
}

/// Other containers are the user's sidecars; one of them may be a frontend.
void add_sidecars(const PodContext& context, Value& containers) {
  const Value* own = context.component.spec().find_at({"podTemplate", "spec", "containers"});
  const std::string_view frontend = context.component.spec().text_at({"frontendSidecar"});
  if (own == nullptr) {
    return;
  }
  for (const Value& container : own->elements()) {
    const std::string_view name = container.text_at({"name"});
    if (name == "main") {
      continue;
    }
    containers.push_back(
        !frontend.empty() && name == frontend
            ? merge_container(frontend_sidecar_defaults(context), container, nullptr)
            : container);
  }
}

Value make_annotations(const PodContext& context) {
  Value annotations = Value::object();
  overlay(annotations, context.graph.object().find_at({"spec", "annotations"}));
  overlay(annotations,
          context.component.spec().find_at({"podTemplate", "metadata", "annotations"}));
  if (context.component.type() == "epp" && annotations.find("sidecar.istio.io/inject") == nullptr) {
    annotations["sidecar.istio.io/inject"] = "false";
  }
  if (!context.restart_id.empty()) {
    annotations[kAnnotationRestartAt] = context.restart_id;
  }
  return annotations;
}

}  // namespace

bool has_routable_gate(const Graph& graph, const Component& component) {
  const std::string_view own = component.annotation(kAnnotationRoutableGate);
  return (own.empty() ? graph.annotation(kAnnotationRoutableGate) : own) == "true";
}

bool is_stator_image(std::string_view image) {
  image = image.substr(0, image.find('@'));
  const size_t slash = image.rfind('/');
  return image.substr(slash == std::string_view::npos ? 0 : slash + 1).starts_with("stator");
}

Value merge_env(const Value& under, const Value& over) {
  Value merged = Value::array();
  for (const Value& entry : under.elements()) {
    if (kube::find_named(&over, entry.text_at({"name"})) == nullptr) {
      merged.push_back(entry);
    }
  }
  for (const Value& entry : over.elements()) {
    merged.push_back(entry);
  }
  return merged;
}

Value system_labels(const PodContext& context) {
  const Graph& graph = context.graph;
  const Component& component = context.component;
  Value labels = Value::object();
  if (!context.selector.empty()) {
    labels[kLabelSelector] = context.selector;
  }
  labels[kLabelGraph] = label_value(graph.name());
  labels[kLabelComponent] = component.name();
  labels[kLabelRuntimeNamespace] = label_value(graph.runtime_namespace_of(component));
  if (!component.type().empty()) {
    labels[kLabelComponentType] = component.type();
  }
  if (component.is_worker()) {
    labels[kLabelComponentClass] = "worker";
    if (component.type() != "worker") {
      labels[kLabelSubComponentType] = component.type();
    }
  }
  if (!context.worker_hash.empty()) {
    labels[kLabelWorkerHash] = context.worker_hash;
  }
  if (const std::string_view model = component.spec().text_at({"modelRef", "name"});
      !model.empty()) {
    labels[kLabelBaseModelHash] = kube::short_hash(model);
  }
  if (graph.discovery() != "etcd") {
    labels[kLabelDiscoveryBackend] = "kubernetes";
    labels[kLabelDiscoveryEnabled] = "true";
  }
  const std::string_view own = component.annotation(kAnnotationEnableMetrics);
  if ((own.empty() ? graph.annotation(kAnnotationEnableMetrics) : own) != "false") {
    labels[kLabelMetricsEnabled] = "true";
  }
  const std::string_view queue = graph.annotation(kAnnotationQueue);
  if (graph.provider() == Provider::kGrove && (context.environment.has_kai || !queue.empty())) {
    labels[kLabelQueue] = queue.empty() ? std::string_view("dynamo") : queue;
  }
  return labels;
}

Value make_pod_template(const PodContext& context) {
  const Value* user_spec = context.component.spec().find_at({"podTemplate", "spec"});
  const Value empty = Value::object();
  const Value& user_main = context.component.main() == nullptr ? empty : *context.component.main();
  Value main = merge_container(default_container(context), user_main,
                               context.graph.object().find_at({"spec", "env"}));
  Value annotations = make_annotations(context);
  Value spec = user_spec == nullptr ? Value::object() : *user_spec;
  spec.erase("containers");
  add_compilation_cache(context, main);
  add_multinode_launch(context, main, spec);
  add_transfer_policy(context, main, spec, annotations);
  if (context.role == Role::kWorker) {
    for (const std::string_view probe : {"startupProbe", "livenessProbe", "readinessProbe"}) {
      main.erase(probe);  // headless: nothing answers there
    }
  }
  fill_pod_spec(context, spec);
  add_routable_gate(context, spec);
  add_shared_memory(context, main, spec);
  if (context.component.type() == "epp") {
    spec["volumes"].push_back(epp_config_volume(context));
  }
  Value containers = Value::array();
  containers.push_back(std::move(main));
  add_sidecars(context, containers);
  spec["containers"] = std::move(containers);
  add_implicit_volumes(spec);
  share_gpus_in_pod(context, spec);
  drop_repeated(spec);

  Value labels = Value::object();
  overlay(labels, context.graph.object().find_at({"spec", "labels"}));
  overlay(labels, context.component.spec().find_at({"podTemplate", "metadata", "labels"}));
  mark_restore_candidate(context, labels, annotations);
  if (annotations.find(kAnnotationTopologyKey) != nullptr ||
      annotations.find(kAnnotationTopologyName) != nullptr) {
    labels[kLabelWantsTopology] = "true";
  }
  const Value system = system_labels(context);
  overlay(labels, &system);  // last: what the system selects by is not the user's to change
  Value pod = Value::object();
  pod["metadata"]["labels"] = std::move(labels);
  if (annotations.size() > 0) {
    pod["metadata"]["annotations"] = std::move(annotations);
  }
  pod["spec"] = std::move(spec);
  return pod;
}

}  // namespace stator::op
