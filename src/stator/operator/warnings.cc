// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/warnings.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace stator::op {
namespace {

using json::Value;

struct Effectless {
  std::string_view field;
  std::string_view effect;
};
constexpr std::array<Effectless, 0> kEffectless = {};

void look(const Value& component, const std::string& path, std::vector<std::string>& warnings) {
  const Value* experimental = component.find("experimental");
  if (experimental == nullptr || !experimental->is_object()) {
    return;
  }
  for (const auto& [field, effect] : kEffectless) {
    const Value* asked = experimental->find(field);
    const Value* enabled = asked == nullptr ? nullptr : asked->find("enabled");
    if (asked != nullptr && (enabled == nullptr || enabled->as_bool().value_or(true))) {
      warnings.push_back(
          fmt::format("{}.experimental.{} is kept, but has no effect: {}", path, field, effect));
    }
  }
}

}  // namespace

std::vector<std::string> warnings_for(const Value& object) {
  std::vector<std::string> warnings;
  const Value* spec = object.find("spec");
  if (spec == nullptr || !spec->is_object()) {
    return warnings;
  }
  if (object.text_at({"kind"}) == "DynamoComponentDeployment") {
    look(*spec, "spec", warnings);
  } else if (const Value* components = spec->find("components")) {
    size_t index = 0;
    for (const Value& component : components->elements()) {
      look(component, fmt::format("spec.components[{}]", index++), warnings);
    }
  }
  return warnings;
}

}  // namespace stator::op
