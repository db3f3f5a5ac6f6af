// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/test/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace stator::parsers {
namespace {

namespace json = boost::json;

std::string text_or(const json::object& object, std::string_view key, std::string_view fallback) {
  const json::value* value = object.if_contains(key);
  return std::string(
      value == nullptr || !value->is_string() ? fallback : std::string_view(value->as_string()));
}

void read_options(const json::object& file, const json::object& one, ParserOptions& options) {
  const FamilyRegistry& registry = FamilyRegistry::builtin();
  const std::string tools = text_or(one, "family", text_or(file, "family", "none"));
  const std::string reasoning = text_or(one, "reasoning", text_or(file, "reasoning", "none"));
  if (tools != "none") {
    auto found = registry.find_tools(tools);
    ASSERT_TRUE(found) << found.error().message();
    options.tools_family = *found;
    options.tool_mode = ToolMode::kNative;
  }
  if (reasoning != "none") {
    auto found = registry.find_reasoning(reasoning);
    ASSERT_TRUE(found) << found.error().message();
    options.reasoning_family = *found;
    const std::string start =
        text_or(one, "start", text_or(file, "start", (*found)->starts_inside ? "inside" : "on"));
    options.reasoning = start == "inside"
                            ? ReasoningMode::kStartsInside
                            : (start == "off" ? ReasoningMode::kOff : ReasoningMode::kOn);
  }
  const std::string choice = text_or(one, "tool_choice", "auto");
  if (choice == "none") {
    options.tool_mode = ToolMode::kOff;
  } else if (choice == "guided") {
    options.tool_mode = ToolMode::kGuidedCalls;
  } else if (choice.starts_with("guided:")) {
    options.tool_mode = ToolMode::kGuidedArguments;
    options.named_tool = choice.substr(7);
  }
  const json::value* schemas = one.contains("tools") ? &one.at("tools") : file.if_contains("tools");
  if (schemas != nullptr && !schemas->is_null()) {
    auto parsed = ToolSchemas::parse(json::serialize(*schemas));
    ASSERT_TRUE(parsed) << parsed.error().message();
    options.schemas = *parsed;
  }
  options.unknown_tools =
      text_or(one, "unknown_tools", "keep") == "drop" ? UnknownTools::kDrop : UnknownTools::kKeep;
  options.parallel_calls = !one.contains("parallel") || one.at("parallel").as_bool();
  options.answers_json = one.contains("answers_json");
  options.force_nonempty_content = one.contains("force_nonempty_content");
}

/// "text": one piece. "pieces": strings are ordinary text, {"special": "<|x|>"} a special token.
void read_pieces(const json::object& one, GoldenCase& golden) {
  std::vector<bool> special;
  if (const json::value* text = one.if_contains("text")) {
    golden.texts.emplace_back(text->as_string());
    special.push_back(false);
  } else {
    for (const json::value& piece : one.at("pieces").as_array()) {
      special.push_back(piece.is_object());
      golden.texts.emplace_back(piece.is_object() ? piece.as_object().at("special").as_string()
                                                  : piece.as_string());
      if (piece.is_object()) {
        golden.options.special_markers.push_back(golden.texts.back());
      }
    }
  }
  if (const json::value* more = one.if_contains("special_markers")) {
    for (const json::value& marker : more->as_array()) {
      golden.options.special_markers.emplace_back(marker.as_string());
    }
  }
  for (size_t i = 0; i < golden.texts.size(); ++i) {
    golden.pieces.push_back({.text = golden.texts[i], .special = special[i]});
  }
}

void read_expected(const json::object& one, GoldenCase& golden) {
  golden.message.content = text_or(one, "content", "");
  golden.message.reasoning = text_or(one, "reasoning_content", "");
  if (const json::value* calls = one.if_contains("calls")) {
    for (const json::value& value : calls->as_array()) {
      const json::object& call = value.as_object();
      golden.checks_ids = golden.checks_ids || call.contains("id");
      golden.message.calls.push_back(
          {.id = text_or(call, "id", ""),
           .name = text_or(call, "name", ""),
           .arguments = text_or(call, "arguments", ""),
           .complete = !call.contains("complete") || call.at("complete").as_bool()});
    }
  }
  golden.end = text_or(one, "end", "stop") == "length" ? StreamEnd::kLength : StreamEnd::kStop;
  golden.finish = text_or(one, "finish", golden.message.calls.empty() ? "stop" : "tool_calls");
  if (const json::value* recoveries = one.if_contains("recoveries")) {
    for (const json::value& name : recoveries->as_array()) {
      golden.recoveries.emplace_back(name.as_string());
    }
  }
}

/// Joins neighbouring deltas, as chunks cut them differently.
class Trace {
 public:
  void add(const EventList& events) {
    for (const Event& event : events.all()) {
      if (event.kind == EventKind::kRecovered) {
        continue;
      }
      const bool is_delta =
          event.kind != EventKind::kCallBegin && event.kind != EventKind::kCallEnd;
      if (!is_delta || event.kind != last_ || event.call_index != index_) {
        text_ += fmt::format("\n{} {} {} ", static_cast<int>(event.kind), event.call_index,
                             event.complete);
        text_ += event.kind == EventKind::kCallBegin ? events.call_id(event) : "";
      }
      text_ += events.bytes(event);
      last_ = event.kind;
      index_ = event.call_index;
    }
  }
  const std::string& text() const { return text_; }

 private:
  EventKind last_ = EventKind::kRecovered;
  uint32_t index_ = 0;
  std::string text_;
};

}  // namespace

std::vector<std::string> golden_files() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           STATOR_SOURCE_DIR "/src/stator/parsers/testdata/goldens")) {
    if (entry.path().extension() == ".json") {
      paths.push_back(entry.path().string());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

std::vector<GoldenCase> read_goldens(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  json::error_code error;
  const json::value file = json::parse(text.str(), error);
  EXPECT_FALSE(error) << path << ": " << error.message();
  std::vector<GoldenCase> cases;
  if (error) {
    return cases;
  }
  for (const json::value& value : file.as_object().at("cases").as_array()) {
    const json::object& one = value.as_object();
    GoldenCase golden;
    golden.name = text_or(one, "name", "unnamed");
    read_options(file.as_object(), one, golden.options);
    read_pieces(one, golden);
    read_expected(one, golden);
    cases.push_back(std::move(golden));
  }
  return cases;
}

Parsed parse_pieces(const ParserOptions& options, const std::vector<Piece>& pieces, StreamEnd end) {
  const auto parser = OutputParser::create(options);
  auto state = parser->make_state();
  Parsed parsed;
  Trace trace;
  EventList events;
  const auto take = [&] {
    parsed.message.add(events);
    trace.add(events);
    for (const Event& event : events.all()) {
      if (event.kind == EventKind::kRecovered) {
        parsed.recoveries.emplace_back(describe(event.recovery));
      }
    }
    events.clear();
  };
  for (const Piece& piece : pieces) {
    parser->feed(state, std::span(&piece, 1), events);
    take();
  }
  const Outcome outcome = parser->finish(state, end, events);
  take();
  parsed.trace = trace.text();
  const bool cut_short = end == StreamEnd::kLength || outcome.truncated_call;
  parsed.finish = cut_short ? "length" : (outcome.has_calls ? "tool_calls" : "stop");
  return parsed;
}

std::vector<Piece> cut(const std::vector<Piece>& pieces, const std::vector<size_t>& offsets) {
  std::vector<Piece> result;
  size_t begin = 0;
  for (const Piece& piece : pieces) {
    size_t at = 0;
    if (!piece.special) {
      for (const size_t offset : offsets) {
        if (offset > begin + at && offset < begin + piece.text.size()) {
          result.push_back({.text = piece.text.substr(at, offset - begin - at)});
          at = offset - begin;
        }
      }
    }
    result.push_back({.text = piece.text.substr(at), .special = piece.special});
    begin += piece.text.size();
  }
  return result;
}

std::string to_json(const Parsed& parsed) {
  json::array calls;
  for (const FinalMessage::Call& call : parsed.message.calls) {
    calls.push_back(json::object{{"name", call.name},
                                 {"arguments", call.arguments},
                                 {"id", call.id},
                                 {"complete", call.complete}});
  }
  json::array recoveries(parsed.recoveries.begin(), parsed.recoveries.end());
  return json::serialize(json::object{{"content", parsed.message.content},
                                      {"reasoning_content", parsed.message.reasoning},
                                      {"calls", calls},
                                      {"finish", parsed.finish},
                                      {"recoveries", recoveries}});
}

}  // namespace stator::parsers
