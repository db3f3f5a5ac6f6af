// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/parsers/final_message.h"
#include "stator/parsers/output_parser.h"

namespace stator::cli {
namespace {

using parsers::Event;
using parsers::EventKind;
using parsers::EventList;
using parsers::FamilyRegistry;
using parsers::FinalMessage;
using parsers::OutputParser;
using parsers::ParserOptions;
using parsers::ReasoningMode;
using parsers::StreamEnd;
using parsers::ToolMode;

std::string_view option(const Invocation& invocation, std::string_view flag,
                        std::string_view fallback) {
  const auto found = invocation.options.find(flag);
  return found == invocation.options.end() ? fallback : std::string_view(found->second);
}

Result<std::string> read_file(std::string_view flag, const std::string& path) {
  STATOR_TRY(std::string text, io::read_file(path), flag);
  return text;
}

Result<FamilyRegistry> load_registry(const Invocation& invocation) {
  const std::string path(option(invocation, "--spec", ""));
  if (path.empty()) {
    return FamilyRegistry::builtin();
  }
  STATOR_TRY(const std::string text, read_file("--spec", path));
  STATOR_TRY(FamilyRegistry registry, FamilyRegistry::with_specs(text), path);
  return registry;
}

template <typename Spec>
void print_names(std::string_view title, std::span<const std::shared_ptr<const Spec>> specs) {
  print(fmt::format("{}:\n", title));
  for (const auto& spec : specs) {
    const std::string aliases =
        spec->aliases.empty() ? "" : fmt::format(" ({})", fmt::join(spec->aliases, ", "));
    print(fmt::format("  {}{}\n", spec->name, aliases));
  }
}

/// A required or named call comes as guided JSON, or in the family's own format. The server knows
/// which it asked for; here the first byte tells, unless the family has calls without markers.
bool looks_guided(std::string_view text, const ParserOptions& options) {
  if (options.tools_family == nullptr) {
    return true;
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '[' || text[first] == '{') &&
         options.tools_family->find_markers("at_start").empty();
}

Status set_tool_choice(std::string_view choice, std::string_view text, ParserOptions& options) {
  if (choice == "none") {
    return {};
  }
  options.tool_mode = options.tools_family == nullptr ? ToolMode::kOff : ToolMode::kNative;
  if (choice == "auto") {
    return {};
  }
  if (choice != "required" && options.schemas != nullptr && !options.schemas->contains(choice)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--tool-choice: --tools has no tool '{}'", choice));
  }
  if (looks_guided(text, options)) {
    options.tool_mode = choice == "required" ? ToolMode::kGuidedCalls : ToolMode::kGuidedArguments;
    options.named_tool = choice;
  }
  return {};
}

Result<ParserOptions> read_options(const Invocation& invocation, const FamilyRegistry& registry) {
  ParserOptions options;
  const auto family = option(invocation, "--family", "none");
  const bool only_reasons = !registry.find_tools(family) && registry.find_reasoning(family);
  if (family != "none" && !only_reasons) {
    STATOR_TRY(options.tools_family, registry.find_tools(family), "--family");
  }
  const auto reasoning = option(invocation, "--reasoning", only_reasons ? family : "none");
  if (reasoning != "none") {
    STATOR_TRY(options.reasoning_family, registry.find_reasoning(reasoning), "--reasoning");
    options.reasoning = invocation.options.contains("--start-in-reasoning") ||
                                options.reasoning_family->starts_inside
                            ? ReasoningMode::kStartsInside
                            : ReasoningMode::kOn;
  } else if (invocation.options.contains("--start-in-reasoning")) {
    return Error(Code::kInvalidArgument, "--start-in-reasoning needs --reasoning NAME");
  }
  if (const std::string path(option(invocation, "--tools", "")); !path.empty()) {
    STATOR_TRY(const std::string text, read_file("--tools", path));
    STATOR_TRY(options.schemas, parsers::ToolSchemas::parse(text), path);
  }
  const auto unknown = option(invocation, "--unknown-tools", "keep");
  if (unknown != "keep" && unknown != "drop") {
    return Error(Code::kInvalidArgument,
                 fmt::format("--unknown-tools is keep or drop, not '{}'", unknown));
  }
  options.unknown_tools =
      unknown == "drop" ? parsers::UnknownTools::kDrop : parsers::UnknownTools::kKeep;
  options.parallel_calls = !invocation.options.contains("--one-call");
  return options;
}

json::Value to_json(const EventList& events, const Event& event) {
  switch (event.kind) {
    case EventKind::kText:
      return {{"event", "text"}, {"text", events.bytes(event)}};
    case EventKind::kReasoning:
      return {{"event", "reasoning"}, {"text", events.bytes(event)}};
    case EventKind::kCallBegin:
      return {{"event", "call_begin"},
              {"index", event.call_index},
              {"id", events.call_id(event)},
              {"name", events.name(event)}};
    case EventKind::kCallArguments:
      return {{"event", "arguments"}, {"index", event.call_index}, {"delta", events.bytes(event)}};
    case EventKind::kCallEnd:
      return {{"event", "call_end"}, {"index", event.call_index}};
    case EventKind::kRecovered:
      break;
  }
  return {{"event", "recovered"}, {"kind", parsers::describe(event.recovery)}};
}

json::Value text_or_null(const std::string& text) {
  return text.empty() ? json::Value(nullptr) : json::Value(text);
}

json::Value to_json(const FinalMessage& message, std::string_view finish_reason) {
  json::Value calls = json::Value::array();
  for (const FinalMessage::Call& call : message.calls) {
    calls.push_back(
        json::Value{{"id", call.id},
                    {"type", "function"},
                    {"function", json::Value{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return {{"event", "message"},
          {"message", json::Value{{"role", "assistant"},
                                  {"content", text_or_null(message.content)},
                                  {"reasoning_content", text_or_null(message.reasoning)},
                                  {"tool_calls", std::move(calls)}}},
          {"finish_reason", finish_reason}};
}

/// A number from 1 on.
Result<size_t> read_count(std::string_view flag, std::string_view text) {
  size_t count = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || count == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} must be a number from 1 on, not '{}'", flag, text));
  }
  return count;
}

/// The end of the piece that is due at `at`, moved on to a character boundary: every printed line
/// is valid UTF-8.
size_t piece_end(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    ++at;
  }
  return std::min(at, text.size());
}

void run_parser(const OutputParser& parser, std::string_view text, size_t pieces, StreamEnd end) {
  auto state = parser.make_state();
  EventList events;
  FinalMessage message;
  std::string lines;
  const auto take = [&] {
    for (const Event& event : events.all()) {
      lines += json::to_text(to_json(events, event)) + "\n";
    }
    message.add(events);
    events.clear();
  };
  const size_t step = std::max<size_t>(1, (text.size() + pieces - 1) / pieces);
  for (size_t at = 0; at < text.size();) {
    const size_t next = piece_end(text, at + step);
    parser.feed(state, text.substr(at, next - at), events);
    at = next;
    take();
  }
  const parsers::Outcome outcome = parser.finish(state, end, events);
  take();
  const bool cut = end == StreamEnd::kLength || outcome.truncated_call;
  const std::string_view finish = cut ? "length" : (outcome.has_calls ? "tool_calls" : "stop");
  print(lines + json::to_text(to_json(message, finish)) + "\n");
}

}  // namespace

Status run_parse(Invocation& invocation) {
  STATOR_TRY(const FamilyRegistry registry, load_registry(invocation));
  if (invocation.options.contains("--list")) {
    print_names<parsers::FamilySpec>("tool calls (--family)", registry.tools());
    print_names<parsers::ReasoningSpec>("reasoning (--reasoning)", registry.reasonings());
    return {};
  }
  STATOR_TRY(ParserOptions options, read_options(invocation, registry));
  STATOR_TRY(const size_t pieces, read_count("--chunks", option(invocation, "--chunks", "1")));
  const auto end = option(invocation, "--finish", "stop");
  if (end != "stop" && end != "length") {
    return Error(Code::kInvalidArgument, fmt::format("--finish is stop or length, not '{}'", end));
  }
  const std::string text = app::read_input();
  if (!simdjson::validate_utf8(text)) {
    return Error(Code::kInvalidArgument, "standard input is not UTF-8 text");
  }
  STATOR_CHECK(set_tool_choice(option(invocation, "--tool-choice", "auto"), text, options));
  run_parser(*OutputParser::create(std::move(options)), text, pieces,
             end == "length" ? StreamEnd::kLength : StreamEnd::kStop);
  return {};
}

}  // namespace stator::cli
