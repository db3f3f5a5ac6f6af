// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/parsers/test/golden.h"

// No byte of a recorded stream is lost or sent twice: its text, reasoning and arguments, in their
// order, stand in it one behind the other, and what is between them is only the format's own.

namespace stator::parsers {
namespace {

namespace fs = std::filesystem;
struct Stream {
  std::string name;
  ParserOptions options;
  std::vector<std::string> deltas;
};

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

ParserOptions options_of(std::string_view tools, std::string_view reasoning, ReasoningMode mode) {
  const FamilyRegistry& registry = FamilyRegistry::builtin();
  ParserOptions options;
  options.tools_family = *registry.find_tools(tools);
  options.reasoning_family = *registry.find_reasoning(reasoning);
  options.tool_mode = ToolMode::kNative;
  options.reasoning = mode;
  return options;
}

void erase_all(std::string& text, std::string_view what) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what)) {
    text.erase(at, what.size());
  }
}

/// What is left of the bytes between events when all that belongs to the format is taken away.
std::string strange_part(std::string gaps, const ParserOptions& options,
                         const FinalMessage& message) {
  std::vector<std::string> known;
  for (const auto& [key, markers] : options.tools_family->markers) {
    std::ranges::transform(markers, std::back_inserter(known), &Marker::text);
  }
  for (const Markers& markers : {options.reasoning_family->open, options.reasoning_family->close}) {
    std::ranges::transform(markers, std::back_inserter(known), &Marker::text);
  }
  for (const FinalMessage::Call& call : message.calls) {
    known.push_back(call.name);
  }
  for (const char* word : {"assistant", "analysis", "commentary", "final", "to=functions.", "json",
                           "function", "\"name\"", "\"arguments\""}) {
    known.emplace_back(word);
  }
  std::ranges::sort(known, std::greater<>(), &std::string::size);
  for (const std::string& one : known) {
    erase_all(gaps, one);
  }
  std::erase_if(gaps, [](char c) { return std::string_view(" \n{}\":,`").contains(c); });
  return gaps;
}

/// The bytes of `text` that no event has; fails if the events do not stand in it in order.
std::string gaps_between(const std::string& text, const std::vector<std::string>& parts) {
  std::string gaps;
  size_t at = 0;
  for (const std::string& part : parts) {
    const size_t found = text.find(part, at);
    if (found == std::string::npos) {
      ADD_FAILURE() << "not in the stream, or sent twice: " << part;
      return gaps;
    }
    gaps += text.substr(at, found - at);
    at = found + part.size();
  }
  return gaps + text.substr(at);
}

void expect_covered(const Stream& stream) {
  SCOPED_TRACE(stream.name);
  const auto parser = OutputParser::create(stream.options);
  auto state = parser->make_state();
  EventList events;  // not cleared: it joins neighbours
  std::string text;
  for (const std::string& delta : stream.deltas) {
    parser->feed(state, delta, events);
    text += delta;
  }
  parser->finish(state, StreamEnd::kStop, events);
  FinalMessage message;
  message.add(events);
  std::vector<std::string> parts;
  for (const Event& event : events.all()) {
    if (event.kind == EventKind::kText || event.kind == EventKind::kReasoning ||
        event.kind == EventKind::kCallArguments) {
      parts.emplace_back(events.bytes(event));
    }
  }

  const std::string gaps = gaps_between(text, parts);

  EXPECT_FALSE(parts.empty());
  EXPECT_EQ(strange_part(gaps, stream.options, message), "") << gaps;
}

TEST(RecordedStreams, LoseNothing) {
  const auto cases =
      read_goldens(STATOR_SOURCE_DIR "/src/stator/parsers/testdata/goldens/recorded.json");
  ASSERT_GE(cases.size(), 16U);
  for (const GoldenCase& golden : cases) {
    if (golden.recoveries.empty()) {  // the end of a call that was cut off is rightly gone
      expect_covered({.name = golden.name, .options = golden.options, .deltas = golden.texts});
    }
  }
}

/// Contents of the `data:` lines of server-sent events, whatever stands between them.
std::vector<std::string> deltas_of(const std::string& events) {
  std::vector<std::string> deltas;
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) {
      continue;
    }
    const json::Value chunk = json::parse(line.substr(6)).value_or(json::Value());
    const json::Value& content = chunk.at("choices").at(0).at("delta").at("content");
    if (content.is_string()) {
      deltas.emplace_back(content.text());
    }
  }
  return deltas;
}

struct TextStream {
  std::string_view file;
  std::string_view tools;
  std::string_view reasoning;
  ReasoningMode mode;
};

TEST(RecordedStreams, OfPlainTextLoseNothing) {
  const fs::path folder = fs::path(STATOR_SHARED_DIR) / "data/streams";
  if (!fs::exists(folder)) {
    GTEST_SKIP() << "no recorded streams at " << folder << ": goldens/recorded.json is tested";
  }
  const TextStream kStreams[] = {
      {"replays/meta/llama-3.1-8b-instruct/chat_completions/chat-completion.streaming.1",
       "llama3_json", "basic", ReasoningMode::kOff},
      {"replays/meta/llama-3.1-8b-instruct/chat_completions/chat-completion.streaming.2",
       "pythonic", "basic", ReasoningMode::kOn},
      {"replays/meta/llama-3.1-8b-instruct/chat_completions/chat-completion.streaming.3",
       "llama3_json", "basic", ReasoningMode::kOn},
      {"replays/deepseek-r1-distill-llama-8b/chat-completions.stream.1", "deepseek_v3",
       "deepseek_r1", ReasoningMode::kStartsInside},
      {"replays/mistralai/mixtral-8x22b-instruct-v0.1/chat_completions/chat-completion.streaming.1",
       "mistral", "mistral", ReasoningMode::kOff},
      {"replays/mistralai/mixtral-8x22b-instruct-v0.1/chat_completions/chat-completion.streaming.3",
       "mistral", "mistral", ReasoningMode::kOn},
      {"replays/agent-harness/text.sse", "harmony", "gpt_oss", ReasoningMode::kOn},
      {"vllm-0.32/http/chat-tools-auto-stream.resp.http", "hermes", "qwen3", ReasoningMode::kOn},
      {"vllm-0.32/http/chat-stream.resp.http", "hermes", "basic", ReasoningMode::kOn},
  };
  for (const TextStream& one : kStreams) {
    const std::vector<std::string> deltas = deltas_of(read_file(folder / one.file));
    ASSERT_FALSE(deltas.empty()) << one.file;
    expect_covered({.name = std::string(one.file),
                    .options = options_of(one.tools, one.reasoning, one.mode),
                    .deltas = deltas});
  }
}

}  // namespace
}  // namespace stator::parsers
