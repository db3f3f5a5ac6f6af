// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_component.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "stator/kube/object.h"
#include "stator/operator/names.h"
#include "stator/operator/validate_pod.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::array<std::string_view, 6> kTypes = {"frontend", "worker",  "prefill",
                                                    "decode",   "planner", "epp"};

std::string under(const ComponentRules& rules, std::string_view key) {
  return fmt::format("{}.{}", rules.path, key);
}

bool changed(const ComponentRules& rules, const Value& spec, std::string_view key) {
  if (rules.old == nullptr) {
    return false;
  }
  const Value* before = rules.old->find(key);
  const Value* after = spec.find(key);
  if (before == nullptr || after == nullptr) {
    return (before == nullptr) != (after == nullptr);
  }
  return !kube::same(*before, *after);
}

/// "MAJOR.MINOR.PATCH", each at most 9999 without leading zeros.
bool is_version(std::string_view text) {
  for (int part = 0; part < 3; ++part) {
    const size_t end = part < 2 ? text.find('.') : text.size();
    if (end == std::string_view::npos || end == 0 || end > 4 || (end > 1 && text.front() == '0') ||
        !std::ranges::all_of(text.substr(0, end), [](char c) { return c >= '0' && c <= '9'; })) {
      return false;
    }
    text.remove_prefix(part < 2 ? end + 1 : end);
  }
  return text.empty();
}

void check_scale(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value& spec = component.spec();
  const auto replicas = check.at_least(spec, rules.path, "replicas", 0);
  const auto minimum = check.at_least(spec, rules.path, "minAvailable", 1);
  if (minimum && rules.provider != Provider::kGrove) {
    check.forbidden(under(rules, "minAvailable"),
                    "only valid on the Grove path: remove it, or set the annotation "
                    "nvidia.com/enable-grove to \"true\"");
  }
  if (minimum && replicas && *replicas != 0 && *minimum > *replicas) {
    check.invalid(under(rules, "minAvailable"), *spec.find("minAvailable"),
                  fmt::format("must not be more than replicas, {}", *replicas));
  }
  if (changed(rules, spec, "minAvailable")) {
    check.forbidden(under(rules, "minAvailable"), "field is immutable");
  }
  check.object(spec, rules.path, "scalingAdapter");
  if (component.has_adapter() && rules.old != nullptr && changed(rules, spec, "replicas") &&
      !rules.admission.is_operator) {
    check.forbidden(under(rules, "replicas"),
                    "scalingAdapter is set: scale the DynamoGraphDeploymentScalingAdapter instead");
  }
}

void check_multinode(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value& spec = component.spec();
  const Value* multinode = check.object(spec, rules.path, "multinode");
  if (multinode != nullptr) {
    check.at_least(*multinode, under(rules, "multinode"), "nodeCount", 2);
    if (component.type() == "epp") {
      check.forbidden(under(rules, "multinode"), "an endpoint picker has one node");
    }
    if (rules.provider == Provider::kComponent && !rules.environment.has_lws) {
      check.forbidden(under(rules, "multinode"),
                      "needs Grove or LeaderWorkerSet, and the cluster has neither");
    }
  }
  if (rules.old != nullptr && (rules.old->find("multinode") != nullptr) != (multinode != nullptr)) {
    check.forbidden(under(rules, "multinode"),
                    "cannot be added or removed after creation: make a new component");
  }
}

void check_picker(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value& spec = component.spec();
  const Value* config = check.object(spec, rules.path, "eppConfig");
  if (component.type() != "epp") {
    if (config != nullptr) {
      check.forbidden(under(rules, "eppConfig"), "only components of type epp have one");
    }
    return;
  }
  if (config == nullptr) {
    check.required(under(rules, "eppConfig"), "set configMapRef or config");
    return;
  }
  const bool by_reference = config->find("configMapRef") != nullptr;
  if (by_reference == (config->find("config") != nullptr)) {
    check.invalid(under(rules, "eppConfig"), *config, "set exactly one of configMapRef and config");
  }
  if (by_reference && config->text_at({"configMapRef", "name"}).empty()) {
    check.required(under(rules, "eppConfig.configMapRef.name"));
  }
  if (component.replicas() != 1) {
    check.invalid(under(rules, "replicas"), *spec.find("replicas"),
                  "an endpoint picker has exactly 1 replica");
  }
  if (!rules.environment.has_inference_pool && rules.old == nullptr) {
    check.forbidden(under(rules, "type"),
                    "epp needs the API inference.networking.k8s.io/v1, which is not installed");
  }
}

void check_storage(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value& spec = component.spec();
  if (const Value* size = spec.find("sharedMemorySize"); size != nullptr && !size->is_null()) {
    const auto amount = kube::parse_quantity_milli(size->text());
    if (!size->is_string() && !size->is_number()) {
      check.invalid(under(rules, "sharedMemorySize"), *size, "must be a quantity, such as 8Gi");
    } else if (!amount) {
      check.invalid(under(rules, "sharedMemorySize"), *size, amount.error().message());
    } else if (*amount < 0) {
      check.invalid(under(rules, "sharedMemorySize"), *size, "must be at least 0");
    }
  }
  const Value* cache = check.object(spec, rules.path, "compilationCache");
  if (cache == nullptr) {
    return;
  }
  const std::string path = under(rules, "compilationCache");
  if (cache->text_at({"pvcName"}).empty()) {
    check.required(path + ".pvcName");
  }
  const auto mount = check.string(*cache, path, "mountPath");
  if ((!mount || mount->empty()) && rules.backend != "vllm") {
    check.required(path + ".mountPath", "only vllm has a path of its own");
  }
  if (const Value* volume = kube::find_named(spec.find_at({"podTemplate", "spec", "volumes"}),
                                             cache->text_at({"pvcName"}));
      volume != nullptr && kube::bool_at(*volume, {"persistentVolumeClaim", "readOnly"}, false)) {
    check.invalid(path + ".pvcName", *cache->find("pvcName"),
                  "is mounted read-only: a cache is written to");
  }
  const Value* main = component.main();
  const Value* mounts = main == nullptr ? nullptr : main->find("volumeMounts");
  if (mount && mounts != nullptr) {
    for (const Value& other : mounts->elements()) {
      if (other.text_at({"mountPath"}) == *mount &&
          other.text_at({"name"}) != cache->text_at({"pvcName"})) {
        check.invalid(path + ".mountPath", *cache->find("mountPath"),
                      "is the mount path of another volume");
      }
    }
  }
}

bool has_container(const Component& component, std::string_view name) {
  return kube::find_named(component.spec().find_at({"podTemplate", "spec", "containers"}), name) !=
         nullptr;
}

/// "" is IntraPod.
bool is_inter_pod(const Value& part) {
  return part.text_at({"mode"}) == "InterPod";
}

constexpr std::array<std::string_view, 2> kModes = {"IntraPod", "InterPod"};

void check_gpu_memory(FieldCheck& check, const ComponentRules& rules, const Component& component,
                      const Value& memory) {
  const std::string path = under(rules, "experimental.gpuMemoryService");
  check.one_of(memory, path, "mode", kModes);
  check.string(memory, path, "deviceClassName");
  if (!component.is_worker()) {
    check.forbidden(path, "only workers have one");
  }
  if (component.gpus() < 1) {
    check.invalid(path, memory, "main must request at least 1 GPU");
  }
  if (memory.find("extraClientPods") != nullptr) {
    check.forbidden(path + ".extraClientPods", "is not supported");
  }
  if (const Value* clients = check.array(memory, path, "extraClientContainers")) {
    for (size_t i = 0; i < clients->size(); ++i) {
      const std::string_view name = clients->elements()[i].text();
      if (name == "main" || !has_container(component, name)) {
        check.invalid(fmt::format("{}.extraClientContainers[{}]", path, i), clients->elements()[i],
                      "must name another container of podTemplate.spec.containers than main");
      }
    }
    if (clients->size() > 0 && is_inter_pod(memory)) {
      check.forbidden(path + ".extraClientContainers", "belongs to mode IntraPod");
    }
  }
  if (is_inter_pod(memory) && (rules.backend != "vllm" || rules.provider != Provider::kGrove)) {
    check.forbidden(path + ".mode", "InterPod needs vllm on the Grove path");
  }
}

void check_failover(FieldCheck& check, const ComponentRules& rules, const Value* memory,
                    const Value& failover) {
  const std::string path = under(rules, "experimental.failover");
  check.one_of(failover, path, "mode", kModes);
  const auto shadows = check.integer(failover, path, "numShadows");
  if (shadows && *shadows != 1) {
    check.invalid(path + ".numShadows", *failover.find("numShadows"), "must be 1");
  }
  if (memory == nullptr) {
    check.forbidden(path, "needs gpuMemoryService with the same mode");
  } else if (is_inter_pod(*memory) != is_inter_pod(failover)) {
    check.invalid(path + ".mode", Value(failover.text_at({"mode"})),
                  "must be the mode of gpuMemoryService");
  }
  if (rules.backend != "vllm") {
    check.forbidden(path, "only vllm has shadow engines");
  }
  if (!is_inter_pod(failover) && rules.discovery_mode != "container") {
    check.forbidden(path,
                    "IntraPod has two engines in a pod: set the annotation "
                    "nvidia.com/dynamo-kube-discovery-mode to \"container\"");
  }
}

void check_checkpoint(FieldCheck& check, const ComponentRules& rules, const Component& component,
                      const Value& checkpoint) {
  const std::string path = under(rules, "experimental.checkpoint");
  constexpr std::array<std::string_view, 2> kStartup = {"Immediate", "WaitForCheckpoint"};
  constexpr std::array<std::string_view, 2> kDeletion = {"Delete", "Retain"};
  check.boolean(checkpoint, path, "enabled");
  check.one_of(checkpoint, path, "startupPolicy", kStartup);
  check.one_of(checkpoint, path, "deletionPolicy", kDeletion);
  if (checkpoint.find("job") != nullptr && checkpoint.find("checkpointRef") != nullptr) {
    check.invalid(path, checkpoint, "set job or checkpointRef, not both");
  }
  const auto target = check.string(checkpoint, path, "targetContainerName");
  if (target && !has_container(component, *target)) {
    check.invalid(path + ".targetContainerName", *checkpoint.find("targetContainerName"),
                  "names no container of podTemplate.spec.containers");
  }
  const bool enabled = kube::bool_at(checkpoint, {"enabled"}, true);
  if (enabled && component.is_multinode()) {
    check.forbidden(path, "a component of several nodes has no checkpoint");
  }
  if (const Value* job = check.object(checkpoint, path, "job")) {
    check.at_least(*job, path + ".job", "activeDeadlineSeconds", 1);
  }
}

/// Whether a part shares GPUs between pods: then it makes cliques, which cannot come or go later.
bool makes_cliques(const Value* experimental, std::string_view part) {
  const Value* own = experimental == nullptr ? nullptr : experimental->find(part);
  return own != nullptr && own->is_object() && is_inter_pod(*own);
}

/// What decides which cliques a component has stays as it is.
void check_kept_layout(FieldCheck& check, const ComponentRules& rules, const Value& experimental) {
  if (rules.old == nullptr || rules.provider != Provider::kGrove) {
    return;
  }
  const std::string path = under(rules, "experimental");
  const Value* old = rules.old->find("experimental");
  const auto forced = [](const Value* from) {
    return from != nullptr && kube::bool_at(*from, {"grove", "forceScalingGroup"}, false);
  };
  if (forced(old) != forced(&experimental)) {
    check.forbidden(path + ".grove.forceScalingGroup",
                    "cannot be toggled after creation: delete the graph and make it anew");
  }
  if (makes_cliques(old, "gpuMemoryService") != makes_cliques(&experimental, "gpuMemoryService")) {
    check.forbidden(path + ".gpuMemoryService.mode",
                    "InterPod cannot be toggled after creation: delete the graph and make it anew");
  }
  if (makes_cliques(old, "failover") != makes_cliques(&experimental, "failover")) {
    check.forbidden(path + ".failover",
                    "InterPod cannot be toggled after creation: delete the graph and make it anew");
  }
}

void check_preview(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value* experimental = check.object(component.spec(), rules.path, "experimental");
  if (experimental == nullptr) {
    check_kept_layout(check, rules, Value::object());
    return;
  }
  const std::string path = under(rules, "experimental");
  const Value* memory = check.object(*experimental, path, "gpuMemoryService");
  if (memory != nullptr) {
    check_gpu_memory(check, rules, component, *memory);
  }
  if (const Value* failover = check.object(*experimental, path, "failover")) {
    check_failover(check, rules, memory, *failover);
  }
  if (const Value* checkpoint = check.object(*experimental, path, "checkpoint")) {
    check_checkpoint(check, rules, component, *checkpoint);
  }
  if (const Value* grove = check.object(*experimental, path, "grove")) {
    check.boolean(*grove, path + ".grove", "forceScalingGroup");
    if (grove->find("forceScalingGroup") != nullptr && rules.provider != Provider::kGrove) {
      check.forbidden(path + ".grove.forceScalingGroup", "only valid on the Grove path");
    }
  }
  check_kept_layout(check, rules, *experimental);
}

constexpr std::string_view kPowerLimit = "dynamo.nvidia.com/gpu-power-limit";

/// Watts of a GPU: scalar GPUs only, since claims do not say which device they get.
void check_power(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value* limit =
      component.spec().find_at({"podTemplate", "metadata", "annotations", kPowerLimit});
  if (limit == nullptr) {
    return;
  }
  const std::string_view watts = limit->text();
  const bool is_whole = !watts.empty() && watts.size() <= 6 && watts != "0" &&
                        std::ranges::all_of(watts, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_whole) {
    check.invalid(fmt::format("{}.podTemplate.metadata.annotations[{}]", rules.path, kPowerLimit),
                  *limit, "must be a whole number of watts, such as 400");
  }
  if (component.spec().find_at({"experimental", "gpuMemoryService"}) != nullptr ||
      component.spec().at("podTemplate").at("spec").at("resourceClaims").size() > 0) {
    check.forbidden(fmt::format("{}.podTemplate.metadata.annotations[{}]", rules.path, kPowerLimit),
                    "cannot be combined with GPUs of resource claims");
  }
}

void check_references(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  const Value& spec = component.spec();
  if (const Value* model = check.object(spec, rules.path, "modelRef");
      model != nullptr && model->text_at({"name"}).empty()) {
    check.required(under(rules, "modelRef.name"));
  }
  const auto sidecar = check.string(spec, rules.path, "frontendSidecar");
  if (sidecar && !sidecar->empty() &&
      kube::find_named(spec.find_at({"podTemplate", "spec", "containers"}), *sidecar) == nullptr) {
    check.invalid(under(rules, "frontendSidecar"), *spec.find("frontendSidecar"),
                  "names no container of podTemplate.spec.containers");
  }
  const auto version = check.string(spec, rules.path, "runtimeVersionOverride");
  if (version && !is_version(*version)) {
    check.invalid(under(rules, "runtimeVersionOverride"), *spec.find("runtimeVersionOverride"),
                  "must be MAJOR.MINOR.PATCH without leading zeros, each at most 9999");
  }
  if (const Value* topology = check.object(spec, rules.path, "topologyConstraint")) {
    const auto domain = check.string(*topology, under(rules, "topologyConstraint"), "packDomain");
    if (!domain || domain->empty()) {
      check.required(under(rules, "topologyConstraint.packDomain"));
    } else if (!is_domain_name(*domain)) {
      check.invalid(under(rules, "topologyConstraint.packDomain"), *topology->find("packDomain"),
                    "must be lower-case letters, digits and hyphens");
    }
  }
  if (changed(rules, spec, "topologyConstraint")) {
    check.forbidden(under(rules, "topologyConstraint"), "field is immutable");
  }
  check.boolean(spec, rules.path, "globalDynamoNamespace");
}

}  // namespace

bool is_component_name(std::string_view name) {
  const auto alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= 63 && alnum(name.front()) && alnum(name.back()) &&
         std::ranges::all_of(name, [&](char c) { return alnum(c) || c == '-'; });
}

bool is_executor(std::string_view text) {
  const std::string word = lower(text);
  return word == "mp" || word == "ray";
}

bool is_domain_name(std::string_view name) {
  return is_component_name(name) &&
         std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; });
}

void check_component(FieldCheck& check, const ComponentRules& rules, const Component& component) {
  if (!component.spec().is_object()) {
    check.invalid(rules.path, component.spec(), "must be an object");
    return;
  }
  check.string(component.spec(), rules.path, "name");
  if (!is_component_name(component.name())) {
    check.invalid(
        under(rules, "name"), Value(component.name()),
        "must be 1 to 63 letters, digits and hyphens, with a letter or digit at both ends");
  }
  check.one_of(component.spec(), rules.path, "type", kTypes);
  if (component.type().empty() && component.spec().find("type") != nullptr &&
      component.spec().find("type")->is_string()) {
    check.unsupported(under(rules, "type"), "", kTypes);
  }
  check_scale(check, rules, component);
  check_multinode(check, rules, component);
  if (!check.ok()) {
    return;
  }
  check_pod_template(check, component.spec(), {rules.path, "podTemplate", "main"});
  if (!check.ok()) {
    return;
  }
  check_picker(check, rules, component);
  check_storage(check, rules, component);
  check_references(check, rules, component);
  check_preview(check, rules, component);
  check_power(check, rules, component);
  if (const std::string_view executor = component.annotation(kAnnotationVllmExecutor);
      !executor.empty() && !is_executor(executor)) {
    check.invalid(
        fmt::format("{}.podTemplate.metadata.annotations[{}]", rules.path, kAnnotationVllmExecutor),
        Value(executor), "must be \"mp\" or \"ray\"");
  }
}

}  // namespace stator::op
