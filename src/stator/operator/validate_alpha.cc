// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_alpha.h"

#include <fmt/format.h>

#include <string>

#include "stator/kube/object.h"
#include "stator/operator/names.h"
#include "stator/operator/validate_component.h"

namespace stator::op {
namespace {

using json::Value;

void check_claims(FieldCheck& check, const Value& spec) {
  const Value* claims = check.array(spec, "spec", "pvcs");
  for (size_t i = 0; claims != nullptr && i < claims->size(); ++i) {
    const Value& claim = claims->elements()[i];
    const std::string path = fmt::format("spec.pvcs[{}]", i);
    if (claim.text_at({"name"}).empty()) {
      check.required(path + ".name");
    }
    if (!kube::bool_at(claim, {"create"}, false)) {
      continue;
    }
    for (const std::string_view key : {"size", "storageClass", "volumeAccessMode"}) {
      if (claim.find(key) == nullptr || claim.find(key)->text().empty()) {
        check.required(fmt::format("{}.{}", path, key), "is needed to make the claim");
      }
    }
  }
}

void check_mounts(FieldCheck& check, const Value& service, const std::string& path) {
  const Value* mounts = check.array(service, path, "volumeMounts");
  for (size_t i = 0; mounts != nullptr && i < mounts->size(); ++i) {
    const Value& mount = mounts->elements()[i];
    const std::string own = fmt::format("{}.volumeMounts[{}]", path, i);
    if (mount.text_at({"name"}).empty()) {
      check.required(own + ".name");
    }
    if (mount.text_at({"mountPoint"}).empty() &&
        !kube::bool_at(mount, {"useAsCompilationCache"}, false)) {
      check.required(own + ".mountPoint", "only a compilation cache has a path of its own");
    }
  }
}

void check_service(FieldCheck& check, const Value& service, const std::string& path) {
  check_mounts(check, service, path);
  if (const Value* memory = check.object(service, path, "sharedMemory");
      memory != nullptr && !kube::bool_at(*memory, {"disabled"}, false) &&
      (memory->find("size") == nullptr || memory->find("size")->text().empty())) {
    check.required(path + ".sharedMemory.size", "shared memory is not disabled");
  }
  const std::string_view executor = service.text_at({"annotations", kAnnotationVllmExecutor});
  if (!executor.empty() && !is_executor(executor)) {
    check.invalid(fmt::format("{}.annotations[{}]", path, kAnnotationVllmExecutor), Value(executor),
                  "must be \"mp\" or \"ray\"");
  }
  const Value* sidecar = service.find("frontendSidecar");
  if (sidecar != nullptr && sidecar->is_object() &&
      kube::find_named(service.find_at({"extraPodSpec", "containers"}), "sidecar-frontend") !=
          nullptr) {
    check.forbidden(path + ".frontendSidecar",
                    "extraPodSpec.containers has a container named \"sidecar-frontend\" already");
  }
}

}  // namespace

void check_alpha(FieldCheck& check, const Value& object) {
  const Value* spec = object.find("spec");
  if (spec == nullptr || !spec->is_object()) {
    return;
  }
  if (object.text_at({"kind"}) == "DynamoComponentDeployment") {
    check_service(check, *spec, "spec");
    return;
  }
  check_claims(check, *spec);
  if (const Value* services = check.object(*spec, "spec", "services")) {
    for (const json::Member& service : services->members()) {
      if (service.value.is_object()) {
        check_service(check, service.value, fmt::format("spec.services[{}]", service.key));
      }
    }
  }
}

}  // namespace stator::op
