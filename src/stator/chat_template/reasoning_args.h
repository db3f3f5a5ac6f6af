// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::chat_template {

/// What a request, and the worker's default, say about reasoning. JSON as the client sent it;
/// empty = not given.
struct ReasoningArgs {
  std::string_view thinking_json;     ///< root `thinking`: true, "enabled", {"type":"adaptive"}, …
  std::string_view reasoning_effort;  ///< root `reasoning_effort`, plain text
  std::string_view kwargs_json;       ///< root `chat_template_kwargs`: an object
  std::string_view default_mode;      ///< of the worker: "enabled", "disabled" or empty
};

/// The chat_template_kwargs to render with. Templates ask for reasoning in three dialects:
/// `thinking` and `enable_thinking` (booleans) and `thinking_mode` ("enabled", "disabled",
/// "adaptive"). One decision is written in all of them; without one, none is. The decision is that
/// of, in this order: root `thinking`; a boolean dialect of kwargs; `thinking_mode` of kwargs; a
/// text `reasoning_effort`, root before kwargs ("none" = off); the worker's default.
/// `adaptive` removes the booleans. The effort is copied into the kwargs, root first. All other
/// kwargs stay as they are; the result is empty when there is nothing to say.
/// kInvalidArgument when a JSON text does not parse or kwargs is not an object.
Result<std::string> normalize_reasoning_args(const ReasoningArgs& args);

}  // namespace stator::chat_template
