// SPDX-License-Identifier: Apache-2.0
#include "stator/api/response.h"

namespace stator::api {

std::string_view finish_reason_name(ChoiceFinish finish) {
  switch (finish) {
    case ChoiceFinish::kStop:
      return "stop";
    case ChoiceFinish::kLength:
      return "length";
    case ChoiceFinish::kToolCalls:
      return "tool_calls";
    case ChoiceFinish::kContentFilter:
      return "content_filter";
    case ChoiceFinish::kNone:
      break;
  }
  return {};
}

ChoiceFinish to_choice_finish(inference::FinishReason reason, ToolCallsSeen tool_calls) {
  switch (reason) {
    case inference::FinishReason::kStop:
    case inference::FinishReason::kCancelled:
      return tool_calls == ToolCallsSeen::kYes ? ChoiceFinish::kToolCalls : ChoiceFinish::kStop;
    case inference::FinishReason::kLength:
      return ChoiceFinish::kLength;
    case inference::FinishReason::kNone:
    case inference::FinishReason::kError:
      break;
  }
  return ChoiceFinish::kNone;
}

Usage& Usage::operator+=(const Usage& other) {
  prompt_tokens += other.prompt_tokens;
  completion_tokens += other.completion_tokens;
  cached_tokens += other.cached_tokens;
  reasoning_tokens += other.reasoning_tokens;
  return *this;
}

}  // namespace stator::api
