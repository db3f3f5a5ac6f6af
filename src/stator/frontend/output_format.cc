// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/output_format.h"

#include <algorithm>
#include <utility>

#include "stator/chat_template/reasoning_args.h"
#include "stator/json/value.h"
#include "stator/parsers/reasoning_mode.h"
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

/// The template's arguments with all dialects of the reasoning switch brought together.
json::Value template_arguments(const api::ChatInput& chat) {
  const auto text =
      chat_template::normalize_reasoning_args({.thinking_json = chat.thinking_json,
                                               .reasoning_effort = chat.reasoning_effort,
                                               .kwargs_json = chat.chat_template_kwargs_json,
                                               .default_mode = chat.default_thinking});
  if (!text || text->empty()) {  // what cannot be read has been refused with the prompt
    return {};
  }
  auto root = json::parse(*text);
  return root ? *std::move(root) : json::Value();
}

std::optional<bool> switch_of(const json::Value& arguments, std::string_view key) {
  return arguments.at(key).as_bool();
}

std::string text_of(const json::Value& arguments, std::string_view key) {
  return std::string(arguments.at(key).as_string().value_or(""));
}

parsers::ReasoningRequest reasoning_request(const json::Value& arguments) {
  return {.thinking = switch_of(arguments, "thinking"),
          .thinking_mode = text_of(arguments, "thinking_mode"),
          .reasoning_effort = text_of(arguments, "reasoning_effort")};
}

/// Where the last of `markers` begins in `text`, plus one; 0 if there is none.
size_t last_of(const parsers::Markers& markers, std::string_view text) {
  size_t last = 0;
  for (const parsers::Marker& marker : markers) {
    last = std::max(last, text.rfind(marker.text) + 1);
  }
  return last;
}

ReasoningMode reasoning_mode(const parsers::ReasoningSpec& spec, const OutputWishes& wishes,
                             const json::Value& arguments) {
  const api::ChatInput& chat = wishes.request.chat;
  if (!chat.continue_final_message) {
    return parsers::choose_reasoning_mode(spec, wishes.prompt_tail, reasoning_request(arguments));
  }
  // The message that is continued says where it stands, far back maybe.
  const bool open =
      last_of(spec.open, wishes.prompt_tail) > last_of(spec.close, wishes.prompt_tail);
  return open ? ReasoningMode::kStartsInside : ReasoningMode::kOn;
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

/// Null if the parser depends on the request.
std::shared_ptr<const parsers::OutputParser> find_shared_parser(
    const ModelParsers& parsers, const parsers::ParserOptions& options) {
  if (options.tool_mode != ToolMode::kOff || options.tools_family != nullptr ||
      options.answers_json || options.force_nonempty_content) {
    return nullptr;
  }
  switch (options.reasoning) {
    case ReasoningMode::kOn:
      return parsers.reasoning_on;
    case ReasoningMode::kStartsInside:
      return parsers.reasoning_inside;
    case ReasoningMode::kOff:
      break;
  }
  return nullptr;
}

std::string format_name(const parsers::ParserOptions& options) {
  switch (options.tool_mode) {
    case ToolMode::kGuidedCalls:
    case ToolMode::kGuidedArguments:
      return "guided_json";
    case ToolMode::kNative:
    case ToolMode::kOff:
      break;
  }
  return options.tools_family != nullptr ? options.tools_family->name
                                         : options.reasoning_family->name;
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
    const json::Value arguments = template_arguments(request.chat);
    options.reasoning = reasoning_mode(*parsers.reasoning, wishes, arguments);
    options.force_nonempty_content = switch_of(arguments, "force_nonempty_content").value_or(false);
  }
  const bool strips_opener =
      parsers.reasoning != nullptr && parsers.reasoning->has_flag("strip_opener_when_off");
  if (options.tool_mode == ToolMode::kOff && !always_on &&
      options.reasoning == ReasoningMode::kOff && !strips_opener) {
    return std::unique_ptr<const OutputFormat>();
  }
  auto format = std::make_unique<OutputFormat>();
  if (options.tools_family != nullptr) {
    format->markers += parsers.tool_markers;
  }
  if (options.reasoning != ReasoningMode::kOff || strips_opener) {
    format->markers += parsers.reasoning_markers;
  }
  if (options.tool_mode != ToolMode::kOff) {
    STATOR_TRY(options.schemas, parsers::ToolSchemas::parse(request.chat.tools_json));
  }
  options.answers_json = wishes.answers_json;
  options.named_tool = request.tool_choice.name;
  options.unknown_tools = wishes.unknown_tools;
  options.parallel_calls = request.parallel_tool_calls;
  options.id_seed = wishes.id_seed;
  options.special_markers = format->markers.texts;
  format->name = format_name(options);
  format->reasons = options.reasoning != ReasoningMode::kOff;
  format->starts_inside = options.reasoning == ReasoningMode::kStartsInside;
  format->hides_special = request.options.skip_special_tokens.value_or(true);
  format->named_call = options.tool_mode == ToolMode::kGuidedArguments;
  format->parser = find_shared_parser(parsers, options);
  if (format->parser == nullptr) {
    format->parser = parsers::OutputParser::create(std::move(options));
  }
  if (format->parser->is_pass_through()) {
    format.reset();
  }
  return format;
}

}  // namespace stator::frontend
