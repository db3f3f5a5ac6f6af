// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/convert_component.h"

#include <algorithm>
#include <array>

#include "stator/kube/object.h"
#include "stator/operator/pod_template.h"

namespace stator::op {
namespace {

using json::Member;
using json::Value;

constexpr std::string_view kSidecarName = "sidecar-frontend";

constexpr std::initializer_list<std::string_view> kSameInBoth = {
    "replicas",   "minAvailable",       "multinode",        "modelRef", "globalDynamoNamespace",
    "eppConfig",  "topologyConstraint", "providerOverride", "roles",    "runtimeVersionOverride",
    "engineGroup"};

void copy(const Value& from, std::string_view key, Value& to) {
  if (const Value* value = from.find(key)) {
    to[key] = *value;
  }
}

/// {cpu, memory, gpu, gpuType, custom} as Kubernetes' amounts.
Value amounts_to_beta(const Value& item) {
  Value amounts = Value::object();
  for (const std::string_view key : {"cpu", "memory"}) {
    copy(item, key, amounts);
  }
  if (const Value* gpu = item.find("gpu"); gpu != nullptr && !gpu->text().empty()) {
    const std::string_view type = item.text_at({"gpuType"});
    amounts[type.empty() ? std::string_view("nvidia.com/gpu") : type] = *gpu;
  }
  if (const Value* custom = item.find("custom")) {
    for (const Member& member : custom->members()) {
      amounts[member.key] = member.value;
    }
  }
  return amounts;
}

void resources_to_beta(const Value& resources, Value& main) {
  for (const std::string_view section : {"requests", "limits"}) {
    if (const Value* item = resources.find(section)) {
      Value amounts = amounts_to_beta(*item);
      if (amounts.size() > 0) {
        Value& target = kube::at(main, {"resources", section});
        const Value own = target;
        target = std::move(amounts);
        kube::merge_patch(target, own.is_object() ? own : Value::object());
      }
    }
  }
  if (const Value* claims = resources.find("claims")) {
    kube::at(main, {"resources"})["claims"] = *claims;
  }
}

void mounts_to_beta(const Value& mounts, Value& main, Value& component) {
  for (const Value& mount : mounts.elements()) {
    if (kube::bool_at(mount, {"useAsCompilationCache"}, false) &&
        component.find("compilationCache") == nullptr) {
      Value& cache = component["compilationCache"];
      cache["pvcName"] = mount.text_at({"name"});
      if (!mount.text_at({"mountPoint"}).empty()) {
        cache["mountPath"] = mount.text_at({"mountPoint"});
      }
      continue;
    }
    Value native = Value::object();
    native["name"] = mount.text_at({"name"});
    native["mountPath"] = mount.text_at({"mountPoint"});
    main["volumeMounts"].push_back(std::move(native));
  }
}

/// "intraPod" → "IntraPod" and back.
Value recased(const Value& mode, bool upper) {
  std::string text(mode.text());
  if (!text.empty()) {
    const char c = text.front();
    text.front() = upper ? (c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c)
                         : (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  return text;
}

void experimental_to_beta(const Value& service, Value& component) {
  for (const std::string_view key : {"gpuMemoryService", "failover", "checkpoint"}) {
    const Value* feature = service.find(key);
    if (feature == nullptr || !kube::bool_at(*feature, {"enabled"}, false)) {
      continue;
    }
    Value converted = *feature;
    if (key != "checkpoint") {
      converted.erase("enabled");
    }
    if (Value* mode = converted.find("mode"); mode != nullptr && key != "checkpoint") {
      *mode = recased(*mode, true);
    }
    kube::at(component, {"experimental"})[key] = std::move(converted);
  }
  if (const Value* experimental = service.find("experimental")) {
    for (const Member& member : experimental->members()) {
      kube::at(component, {"experimental"})[member.key] = member.value;
    }
  }
}

void sidecar_to_beta(const Value& sidecar, Value& component) {
  Value container = Value::object();
  container["name"] = kSidecarName;
  copy(sidecar, "image", container);
  copy(sidecar, "args", container);
  if (const Value* env = sidecar.find("envs")) {
    container["env"] = *env;
  }
  if (const std::string_view secret = sidecar.text_at({"envFromSecret"}); !secret.empty()) {
    Value source = Value::object();
    source["secretRef"]["name"] = secret;
    container["envFrom"].push_back(std::move(source));
  }
  Value& containers = kube::at(component, {"podTemplate", "spec"})["containers"];
  if (kube::find_named(&containers, kSidecarName) == nullptr) {
    containers.push_back(std::move(container));
  }
  component["frontendSidecar"] = kSidecarName;
}

/// The main container of a service, from its flat fields and extraPodSpec.mainContainer.
Value main_to_beta(const Value& service, Value& component) {
  const Value* given = service.find_at({"extraPodSpec", "mainContainer"});
  Value main = Value::object();
  main["name"] = "main";
  if (given != nullptr && given->is_object()) {
    for (const Member& member : given->members()) {
      main[member.key] = member.value;
    }
    main["name"] = "main";
  }
  if (const Value* resources = service.find("resources")) {
    resources_to_beta(*resources, main);
  }
  if (const Value* envs = service.find("envs")) {
    const Value own = main.find("env") == nullptr ? Value::array() : *main.find("env");
    main["env"] = merge_env(*envs, own);
  }
  if (const std::string_view secret = service.text_at({"envFromSecret"}); !secret.empty()) {
    Value source = Value::object();
    source["secretRef"]["name"] = secret;
    main["envFrom"].push_back(std::move(source));
  }
  for (const std::string_view probe : {"livenessProbe", "readinessProbe"}) {
    if (main.find(probe) == nullptr) {
      copy(service, probe, main);
    }
  }
  if (const Value* mounts = service.find("volumeMounts")) {
    mounts_to_beta(*mounts, main, component);
  }
  return main;
}

void pod_to_beta(const Value& service, Value& component) {
  Value main = main_to_beta(service, component);
  const Value* pod = service.find("extraPodSpec");
  Value metadata = Value::object();
  for (const std::string_view section : {"labels", "annotations"}) {
    for (const Value* from :
         {service.find(section), service.find_at({"extraPodMetadata", section})}) {
      if (from != nullptr && from->is_object()) {
        for (const Member& member : from->members()) {
          metadata[section][member.key] = member.value;
        }
      }
    }
  }
  if (metadata.size() > 0) {
    component["podTemplate"]["metadata"] = std::move(metadata);
  }
  const bool has_pod = main.size() > 1 || (pod != nullptr && pod->size() > 0) ||
                       service.find("frontendSidecar") != nullptr;
  if (!has_pod) {
    return;
  }
  Value spec = Value::object();
  if (pod != nullptr && pod->is_object()) {
    spec = *pod;
    spec.erase("mainContainer");
  }
  Value containers = Value::array();
  containers.push_back(std::move(main));
  if (const Value* others = spec.find("containers")) {
    for (const Value& container : others->elements()) {
      containers.push_back(container);
    }
  }
  spec["containers"] = std::move(containers);
  component["podTemplate"]["spec"] = std::move(spec);
}

void pod_to_alpha(const Value& component, Value& service) {
  const Value* pod = component.find("podTemplate");
  if (pod == nullptr) {
    return;
  }
  if (const Value* metadata = pod->find("metadata"); metadata != nullptr && metadata->size() > 0) {
    service["extraPodMetadata"] = *metadata;
  }
  const Value* spec = pod->find("spec");
  if (spec == nullptr || !spec->is_object()) {
    return;
  }
  Value extra = *spec;
  Value others = Value::array();
  const Value* containers = spec->find("containers");
  extra.erase("containers");
  if (containers != nullptr) {
    for (const Value& container : containers->elements()) {
      if (container.text_at({"name"}) != "main") {
        others.push_back(container);
        continue;
      }
      Value main = container;
      main.erase("name");
      extra["mainContainer"] = std::move(main);
    }
  }
  if (others.size() > 0) {
    extra["containers"] = std::move(others);
  }
  service["extraPodSpec"] = std::move(extra);
}

}  // namespace

Value component_to_beta(const Value& service) {
  Value component = Value::object();
  const std::string_view type = service.text_at({"componentType"});
  const std::string_view sub = service.text_at({"subComponentType"});
  const bool promotes = type == "worker" && (sub == "prefill" || sub == "decode");
  constexpr std::array<std::string_view, 6> kTypes = {"frontend", "worker",  "prefill",
                                                      "decode",   "planner", "epp"};
  if (promotes) {
    component["type"] = sub;
  } else if (std::ranges::find(kTypes, type) != kTypes.end()) {
    component["type"] = type;  // other words of v1alpha1 ("main") mean a component of no type
  }
  for (const std::string_view key : kSameInBoth) {
    copy(service, key, component);
  }
  if (const Value* memory = service.find("sharedMemory")) {
    if (kube::bool_at(*memory, {"disabled"}, false)) {
      component["sharedMemorySize"] = "0";
    } else if (memory->find("size") != nullptr) {
      component["sharedMemorySize"] = *memory->find("size");
    }
  }
  if (kube::bool_at(service, {"scalingAdapter", "enabled"}, false)) {
    component["scalingAdapter"] = Value::object();
  }
  pod_to_beta(service, component);
  experimental_to_beta(service, component);
  if (const Value* sidecar = service.find("frontendSidecar")) {
    sidecar_to_beta(*sidecar, component);
  }
  return component;
}

Value component_to_alpha(const Value& component) {
  Value service = Value::object();
  const std::string_view type = component.text_at({"type"});
  if (type == "prefill" || type == "decode") {
    service["componentType"] = "worker";
    service["subComponentType"] = type;
  } else if (!type.empty()) {
    service["componentType"] = type;
  }
  for (const std::string_view key : kSameInBoth) {
    copy(component, key, service);
  }
  if (const Value* size = component.find("sharedMemorySize")) {
    if (kube::parse_quantity_milli(size->text()).value_or(1) == 0) {
      service["sharedMemory"]["disabled"] = true;
    } else {
      service["sharedMemory"]["size"] = *size;
    }
  }
  if (const Value* cache = component.find("compilationCache")) {
    Value mount = Value::object();
    mount["name"] = cache->text_at({"pvcName"});
    if (!cache->text_at({"mountPath"}).empty()) {
      mount["mountPoint"] = cache->text_at({"mountPath"});
    }
    mount["useAsCompilationCache"] = true;
    service["volumeMounts"].push_back(std::move(mount));
  }
  if (component.find("scalingAdapter") != nullptr) {
    service["scalingAdapter"]["enabled"] = true;
  }
  pod_to_alpha(component, service);
  if (const Value* experimental = component.find("experimental")) {
    for (const Member& member : experimental->members()) {
      const bool is_flat = member.key == "gpuMemoryService" || member.key == "failover" ||
                           member.key == "checkpoint";
      if (!is_flat) {
        kube::at(service, {"experimental"})[member.key] = member.value;
        continue;
      }
      Value feature = member.value;
      if (member.key != "checkpoint") {
        feature["enabled"] = true;
        if (Value* mode = feature.find("mode")) {
          *mode = recased(*mode, false);
        }
      }
      service[member.key] = std::move(feature);
    }
  }
  return service;
}

}  // namespace stator::op
