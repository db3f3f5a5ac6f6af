// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stator/parsers/family_spec.h"
#include "stator/parsers/output_parser.h"

namespace stator::parsers {

/// What a request's template arguments say about reasoning, after the dialects have been brought
/// together. Anything absent is left empty.
struct ReasoningRequest {
  std::optional<bool> thinking;  ///< `thinking` or `enable_thinking`
  std::string thinking_mode;     ///< `thinking_mode`: "enabled", "disabled", "adaptive", "chat"
  std::string reasoning_effort;  ///< "none", "low", …
};

/// Whether a family's reasoning has to be looked for in the output to this prompt, and whether it
/// has begun already. Pure.
///
///   options.reasoning = choose_reasoning_mode(*spec, prompt, {.thinking = false});
///
/// `prompt` is the rendered prompt or its last 256 bytes: what it ends with decides before anything
/// else, as it is what the model sees. An opener there means kStartsInside, even if the request
/// says otherwise: the template did not listen. Then the spec's words `off_when` (any of them
/// holds) and `off_unless` (none holds) mean kOff. A closer at the end of the prompt means that
/// reasoning is over, so that kOn is enough. Else the spec's `starts_inside` decides.
ReasoningMode choose_reasoning_mode(const ReasoningSpec& spec, std::string_view prompt,
                                    const ReasoningRequest& request);

/// Whether `word` is a condition that `off_when` and `off_unless` may use: `thinking=true`,
/// `thinking=false`, `thinking_mode=…`, `reasoning_effort` (given and not "none").
bool is_reasoning_condition(std::string_view word);

}  // namespace stator::parsers
