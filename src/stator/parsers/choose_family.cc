// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/parsers/detail/spec_reader.h"
#include "stator/parsers/family_spec.h"

namespace stator::parsers {
namespace {

std::string normalize_model_name(std::string_view name) {
  std::string normal = normalize_family_name(name);
  std::ranges::replace(normal, '_', '-');
  return normal;
}

/// What of the fingerprint fits; empty: nothing.
std::string template_reason(const Fingerprint& match, std::string_view template_text) {
  for (const auto& parts : match.templates) {
    const bool all = std::ranges::all_of(
        parts, [&](const std::string& part) { return template_text.contains(part); });
    if (all && !parts.empty()) {
      return fmt::format("the chat template contains '{}'", fmt::join(parts, "' and '"));
    }
  }
  return {};
}

std::string model_reason(const Fingerprint& match, std::string_view model_name) {
  for (const std::string& part : match.models) {
    if (model_name.contains(part)) {
      return fmt::format("the model name contains '{}'", part);
    }
  }
  return {};
}

template <typename Spec>
struct Best {
  const Spec* spec = nullptr;
  std::string why;
};

/// The fitting spec of the highest priority; of equal ones the first.
template <typename Spec, typename Reason>
Best<Spec> find_best(std::span<const std::shared_ptr<const Spec>> specs, const Reason& reason) {
  Best<Spec> best;
  for (const auto& spec : specs) {
    if (best.spec != nullptr && spec->match.priority <= best.spec->match.priority) {
      continue;
    }
    if (std::string why = reason(spec->match); !why.empty()) {
      best = {.spec = spec.get(), .why = std::move(why)};
    }
  }
  return best;
}

template <typename Spec>
Best<Spec> choose(std::span<const std::shared_ptr<const Spec>> specs,
                  std::string_view template_text, std::string_view model_name) {
  const std::string name = normalize_model_name(model_name);
  auto best = find_best(
      specs, [&](const Fingerprint& match) { return template_reason(match, template_text); });
  if (best.spec == nullptr) {
    best = find_best(specs, [&](const Fingerprint& match) { return model_reason(match, name); });
  }
  return best;
}

}  // namespace

FamilyChoice choose_family(const FamilyRegistry& registry, std::string_view template_text,
                           std::string_view model_name) {
  FamilyChoice choice;
  const auto tools = choose(registry.tools(), template_text, model_name);
  const auto reasoning = choose(registry.reasonings(), template_text, model_name);
  if (tools.spec != nullptr) {
    choice.tools = tools.spec->name;
    choice.why = fmt::format("tool calls as '{}' because {}", choice.tools, tools.why);
  }
  if (reasoning.spec != nullptr) {
    choice.reasoning = reasoning.spec->name;
    choice.why += fmt::format("{}reasoning as '{}' because {}", choice.why.empty() ? "" : "; ",
                              choice.reasoning, reasoning.why);
  } else if (tools.spec != nullptr && tools.spec->owns_reasoning) {
    choice.reasoning = tools.spec->reasoning;
    choice.why +=
        fmt::format("; reasoning as '{}' because it belongs to the same format", choice.reasoning);
  }
  if (choice.why.empty()) {
    choice.why = "neither the chat template nor the model name is known";
  }
  return choice;
}

}  // namespace stator::parsers
