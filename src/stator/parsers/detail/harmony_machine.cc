// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/harmony_machine.h"

#include "stator/parsers/detail/contains.h"

// Channel formats, OpenAI's Harmony the first of them: everything is a message with a header, and
// the header says where it goes.
//
//   <|channel|>analysis<|message|>Look it up.<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
//
// A recipient that names a function makes a call, whatever the channel; else `analysis` is
// reasoning and everything else content. The prompt ends with <|start|>assistant, so the output
// begins inside a header.
//
// Spec keys. Markers: start, channel, constrain, message, end; content, reasoning, calls (instead
// of a header and message: the kind of a message that begins here). Words: reasoning_channels,
// reasoning_recipients, text_recipients, function_prefixes, builtin_tools (recipients that are
// calls only if declared), roles (whose messages are the model's own), channels (all there are:
// like a role, they begin a header even if the marker before them is missing), call_body
// (json_calls or tag_params: the machine that reads a message with calls; else it is the arguments
// of a call of the recipient). Flags: bare_headers (inside a message, to=NAME and a message marker
// are the header of another one, whose beginning was forgotten), spaced (the tokenizer writes a
// space behind every marker; that of a message is not the model's).

namespace stator::parsers {
namespace {

/// Of `spec`'s word call_body.
std::unique_ptr<const BodyMachine> make_calls_machine(const BodyContext& context) {
  const auto& name = context.spec.find_words("call_body");
  if (contains(name, "json_calls")) {
    return make_json_calls_machine(context);
  }
  return contains(name, "tag_params") ? make_tag_params_machine(context) : nullptr;
}

}  // namespace

HarmonyMachine::HarmonyMachine(const BodyContext& context)
    : markers(context.options.special_markers),
      reasoning_channels(context.spec.find_words("reasoning_channels")),
      reasoning_recipients(context.spec.find_words("reasoning_recipients")),
      text_recipients(context.spec.find_words("text_recipients")),
      function_prefixes(context.spec.find_words("function_prefixes")),
      builtin_tools(context.spec.find_words("builtin_tools")),
      roles(context.spec.find_words("roles")),
      channels(context.spec.find_words("channels")),
      calls(make_calls_machine(context)),
      has_kinds(!context.spec.find_markers("content").empty()),
      bare_headers(context.spec.has_flag("bare_headers")),
      spaced(context.spec.has_flag("spaced")) {
  markers.add(context.spec.find_markers("start"), kStart);
  markers.add(context.spec.find_markers("channel"), kChannel);
  markers.add(context.spec.find_markers("constrain"), kConstrain);
  markers.add(context.spec.find_markers("message"), kMessage);
  markers.add(context.spec.find_markers("end"), kEnd);
  for (const Marker& end : context.spec.find_markers("end")) {
    ends.push_back(end.text);
  }
  markers.add(context.spec.find_markers("content"), kContent);
  markers.add(context.spec.find_markers("reasoning"), kReasoning);
  markers.add(context.spec.find_markers("calls"), kCalls);
}

std::string_view HarmonyMachine::tool_of(std::string_view recipient,
                                         const ParserOptions& options) const {
  if (options.tool_mode == ToolMode::kOff || recipient.empty() || contains(roles, recipient) ||
      contains(text_recipients, recipient)) {
    return {};
  }
  for (const std::string& prefix : function_prefixes) {
    if (recipient.starts_with(prefix)) {
      return recipient.substr(prefix.size());
    }
  }
  return recipient;
}

HarmonyRoute HarmonyMachine::route(const MessageHeader& header,
                                   const ParserOptions& options) const {
  using Kind = HarmonyRoute::Kind;
  if (!header.role.empty() && !contains(roles, header.role)) {
    return {.kind = Kind::kDropped};  // somebody else's message, made up by the model
  }
  if (contains(reasoning_recipients, header.recipient)) {
    return {.kind = Kind::kReasoning};
  }
  const std::string_view owner =
      std::string_view(header.recipient).substr(0, header.recipient.find('.'));
  if (contains(builtin_tools, owner) &&
      (options.schemas == nullptr || !options.schemas->contains(header.recipient))) {
    return {.kind = Kind::kDropped};
  }
  if (contains(function_prefixes, header.recipient) && options.tool_mode != ToolMode::kOff) {
    return {.kind = Kind::kDropped};  // a function without a name
  }
  const std::string_view tool = tool_of(header.recipient, options);
  if (tool.empty()) {
    return {.kind =
                contains(reasoning_channels, header.channel) ? Kind::kReasoning : Kind::kContent};
  }
  return {.kind = Kind::kCall, .tool = std::string(tool)};
}

}  // namespace stator::parsers
