// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/family_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/parsers/detail/contains.h"
#include "stator/parsers/detail/spec_reader.h"

namespace stator::parsers {
namespace {

const Markers kNoMarkers;
const std::vector<std::string> kNoWords;

/// What two spellings of a name have in common: "DeepSeek-V3.1" is "deepseek_v3_1" is
/// "deepseekv31".
std::string comparable(std::string_view name) {
  std::string key = normalize_family_name(name);
  std::erase_if(key, [](char c) { return c == '_' || c == '.'; });
  return key;
}

template <typename Spec>
Result<std::shared_ptr<const Spec>> find(std::span<const std::shared_ptr<const Spec>> specs,
                                         std::string_view name, std::string_view what) {
  const std::string wanted = comparable(name);
  std::string known;
  for (const auto& spec : specs) {
    if (comparable(spec->name) == wanted || contains(spec->aliases, wanted, comparable)) {
      return spec;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", spec->name);
  }
  return Error(Code::kNotFound,
               fmt::format("no {} parser is called '{}'; there are: {}", what, name, known));
}

/// Adds, or takes the place of the one with the same name.
template <typename Spec>
void put(std::vector<std::shared_ptr<const Spec>>& specs, Spec spec) {
  const auto same = std::ranges::find_if(
      specs, [&](const auto& existing) { return existing->name == spec.name; });
  auto shared = std::make_shared<const Spec>(std::move(spec));
  if (same == specs.end()) {
    specs.push_back(std::move(shared));
  } else {
    *same = std::move(shared);
  }
}

}  // namespace

const Markers& FamilySpec::find_markers(std::string_view key) const {
  const auto found = markers.find(key);
  return found == markers.end() ? kNoMarkers : found->second;
}

const std::vector<std::string>& FamilySpec::find_words(std::string_view key) const {
  const auto found = words.find(key);
  return found == words.end() ? kNoWords : found->second;
}

bool FamilySpec::has_flag(std::string_view flag) const {
  return contains(flags, flag);
}

const std::vector<std::string>& ReasoningSpec::find_words(std::string_view key) const {
  const auto found = words.find(key);
  return found == words.end() ? kNoWords : found->second;
}

bool ReasoningSpec::has_flag(std::string_view flag) const {
  return contains(flags, flag);
}

const FamilyRegistry& FamilyRegistry::builtin() {
  static const FamilyRegistry registry = [] {
    FamilyRegistry builtins;
    for (const BuiltinSpec& spec : builtin_specs()) {
      const Status status = builtins.add(spec.text);
      STATOR_ASSERT(status.has_value(),
                    status ? "" : fmt::format("{}: {}", spec.file, status.error().message()));
    }
    return builtins;
  }();
  return registry;
}

Result<FamilyRegistry> FamilyRegistry::with_specs(std::string_view spec_json) {
  FamilyRegistry registry = builtin();
  STATOR_CHECK(registry.add(spec_json));
  return registry;
}

Status FamilyRegistry::add(std::string_view spec_json) {
  STATOR_TRY(std::vector<AnySpec> specs, read_specs(spec_json));
  for (AnySpec& spec : specs) {
    if (auto* tools = std::get_if<FamilySpec>(&spec)) {
      put(tools_, std::move(*tools));
    } else {
      put(reasonings_, std::get<ReasoningSpec>(std::move(spec)));
    }
  }
  return {};
}

Result<std::shared_ptr<const FamilySpec>> FamilyRegistry::find_tools(std::string_view name) const {
  return find<FamilySpec>(tools_, name, "tool call");
}

Result<std::shared_ptr<const ReasoningSpec>> FamilyRegistry::find_reasoning(
    std::string_view name) const {
  return find<ReasoningSpec>(reasonings_, name, "reasoning");
}

}  // namespace stator::parsers
