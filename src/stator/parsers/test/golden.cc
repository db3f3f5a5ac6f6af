// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/test/golden.h"
#include "stator/json/value.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace stator::parsers {
namespace {

std::string text_or(const json::Value& object, std::string_view key, std::string_view fallback) {
  const json::Value* value = object.find(key);
  return std::string(value == nullptr || !value->is_string() ? fallback
                                                             : std::string_view(value->text()));
}

void read_options(const json::Value& file, const json::Value& one, ParserOptions& options) {
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
  const json::Value* schemas =
      one.find("tools") != nullptr ? one.find("tools") : file.find("tools");
  if (schemas != nullptr && !schemas->is_null()) {
    auto parsed = ToolSchemas::parse(json::to_text(*schemas));
    ASSERT_TRUE(parsed) << parsed.error().message();
    options.schemas = *parsed;
  }
  options.unknown_tools =
      text_or(one, "unknown_tools", "keep") == "drop" ? UnknownTools::kDrop : UnknownTools::kKeep;
  options.parallel_calls = one.at("parallel").as_bool().value_or(true);
  options.answers_json = one.find("answers_json") != nullptr;
  options.force_nonempty_content = one.find("force_nonempty_content") != nullptr;
}

/// "text": one piece. "pieces": strings are ordinary text, {"special": "<|x|>"} a special token.
void read_pieces(const json::Value& one, GoldenCase& golden) {
  std::vector<bool> special;
  if (const json::Value* text = one.find("text")) {
    golden.texts.emplace_back(text->text());
    special.push_back(false);
  } else {
    for (const json::Value& piece : one.at("pieces").elements()) {
      special.push_back(piece.is_object());
      golden.texts.emplace_back(piece.is_object() ? piece.at("special").text() : piece.text());
      if (piece.is_object()) {
        golden.options.special_markers.push_back(golden.texts.back());
      }
    }
  }
  if (const json::Value* more = one.find("special_markers")) {
    for (const json::Value& marker : more->elements()) {
      golden.options.special_markers.emplace_back(marker.text());
    }
  }
  for (size_t i = 0; i < golden.texts.size(); ++i) {
    golden.pieces.push_back({.text = golden.texts[i], .special = special[i]});
  }
}

void read_expected(const json::Value& one, GoldenCase& golden) {
  golden.message.content = text_or(one, "content", "");
  golden.message.reasoning = text_or(one, "reasoning_content", "");
  if (const json::Value* calls = one.find("calls")) {
    for (const json::Value& call : calls->elements()) {
      golden.checks_ids = golden.checks_ids || call.find("id") != nullptr;
      golden.message.calls.push_back({.id = text_or(call, "id", ""),
                                      .name = text_or(call, "name", ""),
                                      .arguments = text_or(call, "arguments", ""),
                                      .complete = call.at("complete").as_bool().value_or(true)});
    }
  }
  golden.end = text_or(one, "end", "stop") == "length" ? StreamEnd::kLength : StreamEnd::kStop;
  golden.finish = text_or(one, "finish", golden.message.calls.empty() ? "stop" : "tool_calls");
  if (const json::Value* recoveries = one.find("recoveries")) {
    for (const json::Value& name : recoveries->elements()) {
      golden.recoveries.emplace_back(name.text());
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
  const auto parsed = json::parse(text.str());
  std::vector<GoldenCase> cases;
  if (!parsed) {
    ADD_FAILURE() << path << ": " << parsed.error().message();
    return cases;
  }
  const json::Value& file = *parsed;
  for (const json::Value& one : file.at("cases").elements()) {
    GoldenCase golden;
    golden.name = text_or(one, "name", "unnamed");
    read_options(file, one, golden.options);
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
  json::Value calls = json::Value::array();
  for (const FinalMessage::Call& call : parsed.message.calls) {
    calls.push_back(json::Value{{"name", call.name},
                                {"arguments", call.arguments},
                                {"id", call.id},
                                {"complete", call.complete}});
  }
  json::Value recoveries = json::Value::array();
  for (const auto& recovery : parsed.recoveries) {
    recoveries.push_back(recovery);
  }
  return json::to_text(json::Value{{"content", parsed.message.content},
                                   {"reasoning_content", parsed.message.reasoning},
                                   {"calls", calls},
                                   {"finish", parsed.finish},
                                   {"recoveries", recoveries}});
}

}  // namespace stator::parsers
