// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/parsers/detail/spec_reader.h"
#include "stator/parsers/family_spec.h"

namespace stator::parsers {
namespace {

std::string normalize_model_name(std::string_view name) {
  std::string normal = normalize_family_name(name);
  std::ranges::replace(normal, '_', '-');
  return normal;
}

/// How well a fingerprint fits; `why` is empty if it does not.
struct Fit {
  std::string why;
  size_t specificity = 0;
};

Fit fit_template(const Fingerprint& match, std::string_view template_text) {
  for (const auto& parts : match.templates) {
    const bool all = std::ranges::all_of(
        parts, [&](const std::string& part) { return template_text.contains(part); });
    if (all && !parts.empty()) {
      return {.why = fmt::format("the chat template contains '{}'", fmt::join(parts, "' and '"))};
    }
  }
  return {};
}

/// The longest fitting part counts: "deepseek-v3.1" says more than "deepseek-v3".
Fit fit_model(const Fingerprint& match, std::string_view model_name) {
  Fit fit;
  for (const std::string& part : match.models) {
    if (part.size() > fit.specificity && model_name.contains(part)) {
      fit = {.why = fmt::format("the model name contains '{}'", part), .specificity = part.size()};
    }
  }
  return fit;
}

template <typename Spec>
struct Best {
  const Spec* spec = nullptr;
  Fit fit;
};

/// The most specific fit, then the highest priority, then the first.
template <typename Spec, typename Measure>
Best<Spec> find_best(std::span<const std::shared_ptr<const Spec>> specs, const Measure& measure) {
  Best<Spec> best;
  for (const auto& spec : specs) {
    Fit fit = measure(spec->match);
    if (fit.why.empty()) {
      continue;
    }
    const auto rank = std::pair(fit.specificity, spec->match.priority);
    if (best.spec == nullptr || rank > std::pair(best.fit.specificity, best.spec->match.priority)) {
      best = {.spec = spec.get(), .fit = std::move(fit)};
    }
  }
  return best;
}

template <typename Spec>
Best<Spec> choose(std::span<const std::shared_ptr<const Spec>> specs,
                  std::string_view template_text, std::string_view model_name) {
  const std::string name = normalize_model_name(model_name);
  auto best = find_best(
      specs, [&](const Fingerprint& match) { return fit_template(match, template_text); });
  if (best.spec == nullptr) {
    best = find_best(specs, [&](const Fingerprint& match) { return fit_model(match, name); });
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
    choice.why = fmt::format("tool calls as '{}' because {}", choice.tools, tools.fit.why);
  }
  if (reasoning.spec != nullptr) {
    choice.reasoning = reasoning.spec->name;
    choice.why += fmt::format("{}reasoning as '{}' because {}", choice.why.empty() ? "" : "; ",
                              choice.reasoning, reasoning.fit.why);
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
