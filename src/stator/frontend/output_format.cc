// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/output_format.h"

#include <algorithm>
#include <utility>

#include "stator/structured/lower.h"
#include "stator/structured/tool_constraint.h"

namespace stator::frontend {
namespace {

using api::ToolChoice;
using parsers::ReasoningMode;
using parsers::ToolMode;

bool allows_tools(const api::ChatRequest& request) {
  return !request.chat.tools_json.empty() && request.tool_choice.kind != ToolChoice::Kind::kNone;
}

ToolMode tool_mode(const ModelParsers& parsers, const api::ChatRequest& request) {
  if (!allows_tools(request)) {
    return ToolMode::kOff;
  }
  switch (request.tool_choice.kind) {
    case ToolChoice::Kind::kRequired:
      return ToolMode::kGuidedCalls;
    case ToolChoice::Kind::kNamed:
      return ToolMode::kGuidedArguments;
    case ToolChoice::Kind::kDefault:
    case ToolChoice::Kind::kAuto:
    case ToolChoice::Kind::kNone:
      break;
  }
  return parsers.tools == nullptr ? ToolMode::kOff : ToolMode::kNative;
}

ReasoningMode reasoning_mode(const parsers::ReasoningSpec& spec, std::string_view prompt_tail) {
  const size_t end = prompt_tail.find_last_not_of(" \t\r\n");
  const std::string_view tail = prompt_tail.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const auto ends_with = [&](const parsers::Markers& markers) {
    return std::ranges::any_of(markers,
                               [&](const auto& marker) { return tail.ends_with(marker.text); });
  };
  if (ends_with(spec.open)) {
    return ReasoningMode::kStartsInside;
  }
  return spec.starts_inside && !ends_with(spec.close) ? ReasoningMode::kStartsInside
                                                      : ReasoningMode::kOn;
}

api::ApiError to_api_error(structured::Refusal refusal) {
  const bool unsupported = refusal.code == Code::kUnsupported;
  std::string param = refusal.field;
  const Error error = std::move(refusal).to_error();
  return unsupported ? api::unsupported_error(std::move(param), error.message())
                     : api::validation_error(std::move(param), error.message());
}

template <typename T>
api::ApiResult<T> checked(structured::Outcome<T> outcome) {
  if (!outcome) {
    return to_api_error(std::move(outcome.error()));
  }
  return std::move(*outcome);
}

/// The shape of calls that must be made; nothing where the model is free.
api::ApiResult<std::optional<structured::StructuredOutput>> constrain_calls(
    const api::ChatRequest& request) {
  using Choice = structured::ToolPolicy::Choice;
  structured::ToolPolicy policy{.name = request.tool_choice.name,
                                .parallel = request.parallel_tool_calls};
  switch (request.tool_choice.kind) {
    case ToolChoice::Kind::kRequired:
      policy.choice = Choice::kRequired;
      break;
    case ToolChoice::Kind::kNamed:
      policy.choice = Choice::kNamed;
      break;
    case ToolChoice::Kind::kDefault:
    case ToolChoice::Kind::kNone:
    case ToolChoice::Kind::kAuto:
      return std::optional<structured::StructuredOutput>();
  }
  STATOR_TRY(const auto tools, checked(structured::read_tools(request.chat.tools_json)));
  // Without the family's own spelling: such calls come as plain JSON (ToolMode::kGuided…).
  return checked(structured::constrain_tools(tools, policy, nullptr));
}

}  // namespace

api::ApiResult<std::string> make_structured_outputs(
    const std::optional<structured::StructuredOutput>& from_fields, const api::ChatRequest* chat,
    bool engine_follows) {
  std::optional<structured::StructuredOutput> from_calls;
  if (chat != nullptr) {
    STATOR_TRY(from_calls, constrain_calls(*chat));
  }
  if (!from_fields && !from_calls) {
    return std::string();
  }
  STATOR_TRY(const auto output,
             checked(structured::join_constraints(from_fields, std::move(from_calls))));
  if (!output) {
    return std::string();
  }
  if (!engine_follows) {
    return api::unsupported_error(
        output->field,
        output->field + " needs guided decoding, which this model's engine does not offer");
  }
  return structured::encode(*output);
}

api::ApiResult<std::unique_ptr<const OutputFormat>> make_output_format(const ModelParsers& parsers,
                                                                       const OutputWishes& wishes) {
  const api::ChatRequest& request = wishes.request;
  parsers::ParserOptions options;
  options.tool_mode = tool_mode(parsers, request);
  const bool always_on = parsers.tools != nullptr && parsers.tools->always_on;
  if (options.tool_mode == ToolMode::kNative || always_on) {
    options.tools_family = parsers.tools;
  }
  if (parsers.reasoning != nullptr) {
    options.reasoning_family = parsers.reasoning;
    options.reasoning = reasoning_mode(*parsers.reasoning, wishes.prompt_tail);
  }
  if (options.tool_mode == ToolMode::kOff && !always_on &&
      options.reasoning == ReasoningMode::kOff) {
    return std::unique_ptr<const OutputFormat>();
  }
  auto format = std::make_unique<OutputFormat>();
  if (options.tools_family != nullptr) {
    format->markers += parsers.tool_markers;
  }
  if (options.reasoning != ReasoningMode::kOff) {
    format->markers += parsers.reasoning_markers;
  }
  if (options.tool_mode != ToolMode::kOff) {
    STATOR_TRY(options.schemas, parsers::ToolSchemas::parse(request.chat.tools_json));
  }
  options.named_tool = request.tool_choice.name;
  options.unknown_tools = wishes.unknown_tools;
  options.parallel_calls = request.parallel_tool_calls;
  options.id_seed = wishes.id_seed;
  options.special_markers = format->markers.texts;
  format->reasons = options.reasoning != ReasoningMode::kOff;
  format->starts_inside = options.reasoning == ReasoningMode::kStartsInside;
  format->hides_special = request.options.skip_special_tokens.value_or(true);
  format->named_call = options.tool_mode == ToolMode::kGuidedArguments;
  format->parser = parsers::OutputParser::create(std::move(options));
  if (format->parser->is_pass_through()) {
    format.reset();
  }
  return format;
}

}  // namespace stator::frontend
