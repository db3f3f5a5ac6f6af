// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_pod.h"

#include <fmt/format.h>

#include <array>

#include "stator/kube/object.h"
#include "stator/operator/label_syntax.h"
#include "stator/operator/validate_container.h"

namespace stator::op {
namespace {

using json::Value;

void check_volumes(FieldCheck& check, const Value& spec, const std::string& path) {
  const Value* volumes = check.array(spec, path, "volumes");
  for (size_t i = 0; volumes != nullptr && i < volumes->size(); ++i) {
    const Value& volume = volumes->elements()[i];
    const std::string own = fmt::format("{}.volumes[{}]", path, i);
    const auto name = check.string(volume, own, "name");
    if (!name || name->empty()) {
      check.required(own + ".name");
    } else if (kube::find_named(volumes, *name) != &volume) {
      check.invalid(own + ".name", *volume.find("name"), "is the name of another volume");
    }
  }
}

void check_tolerations(FieldCheck& check, const Value& spec, const std::string& path) {
  constexpr std::array<std::string_view, 4> kOperators = {"Exists", "Equal", "Lt", "Gt"};
  constexpr std::array<std::string_view, 4> kEffects = {"NoSchedule", "PreferNoSchedule",
                                                        "NoExecute", ""};
  const Value* tolerations = check.array(spec, path, "tolerations");
  for (size_t i = 0; tolerations != nullptr && i < tolerations->size(); ++i) {
    const std::string own = fmt::format("{}.tolerations[{}]", path, i);
    check.one_of(tolerations->elements()[i], own, "operator", kOperators);
    check.one_of(tolerations->elements()[i], own, "effect", kEffects);
  }
}

}  // namespace

void check_pod_template(FieldCheck& check, const Value& owner, const PodPlace& place) {
  const std::string template_path = fmt::format("{}.{}", place.owner, place.key);
  const std::string path = template_path + ".spec";
  const std::string wanted = fmt::format("a container named {} with an image", place.main);
  const Value* pod = check.object(owner, place.owner, place.key);
  if (pod == nullptr) {
    check.required(path + ".containers", wanted);
    return;
  }
  if (const Value* metadata = check.object(*pod, template_path, "metadata")) {
    check_labels(check, *metadata, template_path + ".metadata", "labels");
    check_annotation_map(check, *metadata, template_path + ".metadata", "annotations");
  }
  const Value* spec = check.object(*pod, template_path, "spec");
  const Value* containers = spec == nullptr ? nullptr : check.array(*spec, path, "containers");
  if (!check.ok()) {
    return;
  }
  if (kube::find_named(containers, place.main) == nullptr) {
    check.required(path + ".containers", wanted);
    return;
  }
  check.at_least(*spec, path, "terminationGracePeriodSeconds", 0);
  constexpr std::array<std::string_view, 3> kRestarts = {"Always", "OnFailure", "Never"};
  check.one_of(*spec, path, "restartPolicy", kRestarts);
  check.string_map(*spec, path, "nodeSelector");
  check_volumes(check, *spec, path);
  check_tolerations(check, *spec, path);
  for (const std::string_view key : {"containers", "initContainers"}) {
    const Value* list = check.array(*spec, path, key);
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      check_container(check, *list, i, fmt::format("{}.{}[{}]", path, key, i));
    }
  }
}

}  // namespace stator::op
