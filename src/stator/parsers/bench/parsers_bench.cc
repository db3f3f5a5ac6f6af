// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/parsers/output_parser.h"

// MB/s of output text for every family, text-heavy (prose and code with one call at the end),
// call-heavy (a call of the family's own goldens, over and over) and one call with a large
// argument; in pieces as large as a token and as large as a busy stream's.

namespace stator::parsers {
namespace {

constexpr size_t kTextBytes = size_t{1} << 20;

std::string prose() {
  constexpr std::string_view kParagraph =
      "The quick brown fox jumps over the lazy dog; then it asks whether a < b && b > c holds.\n"
      "```cpp\nfor (const auto& [key, value] : table) { out << key << \"=\" << value[0]; }\n```\n"
      "In Zürich sagt man „Grüezi“, 東京では「こんにちは」. <b>Bold</b> is a tag, [1] a "
      "footnote.\n";
  std::string text;
  while (text.size() < kTextBytes) {
    text += kParagraph;
  }
  return text;
}

/// Whether the family finds calls in the text and nothing to complain about.
bool is_clean_call(const ParserOptions& options, const std::string& text) {
  const auto parser = OutputParser::create(options);
  auto state = parser->make_state();
  EventList events;
  parser->feed(state, text, events);
  const Outcome outcome = parser->finish(state, StreamEnd::kStop, events);
  const bool clean = std::ranges::none_of(
      events.all(), [](const Event& event) { return event.kind == EventKind::kRecovered; });
  return outcome.has_calls && !outcome.truncated_call && clean;
}

/// A well-formed call of the family, with `part` in it: the longest of its goldens.
std::string golden_call(const FamilySpec& spec, const ParserOptions& options,
                        std::string_view part) {
  std::ifstream file(
      fmt::format("{}/src/stator/parsers/testdata/goldens/{}.json", STATOR_SOURCE_DIR, spec.name));
  std::ostringstream text;
  text << file.rdbuf();
  const json::Value goldens = json::parse(text.str()).value_or(json::Value());
  std::string longest;
  for (const auto& golden : goldens.at("cases").elements()) {
    const auto* given = golden.find("text");
    if (given == nullptr || given->text().size() <= longest.size()) {
      continue;
    }
    std::string candidate(given->text());
    if (candidate.find(part) != std::string::npos && is_clean_call(options, candidate)) {
      longest = std::move(candidate);
    }
  }
  return longest;
}

void parse(benchmark::State& state, const ParserOptions& options, const std::string& text,
           size_t piece_bytes) {
  const auto parser = OutputParser::create(options);
  EventList events;
  for (auto _ : state) {
    auto choice = parser->make_state();
    for (size_t at = 0; at < text.size(); at += piece_bytes) {
      events.clear();
      parser->feed(choice, std::string_view(text).substr(at, piece_bytes), events);
      benchmark::DoNotOptimize(events.all().data());
    }
    parser->finish(choice, StreamEnd::kStop, events);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

/// One stream of the same calls again and again.
std::string repeat(const std::string& call) {
  std::string calls;
  while (calls.size() < size_t{256} << 10) {
    calls += call + "\n";
  }
  return calls;
}

/// A call whose one argument is 64 KiB long: a file that an agent writes.
std::string grow(std::string call, std::string_view part) {
  std::string filler;
  while (filler.size() < size_t{64} << 10) {
    filler += "  const auto value = compute(first, second) + third_or_fourth(index); // a line ";
  }
  return call.replace(call.find(part), 0, filler);
}

void add(const FamilySpec& spec, std::string_view what, const ParserOptions& options,
         const std::string& text) {
  for (const size_t piece_bytes : {size_t{4}, size_t{256}, size_t{16384}}) {
    benchmark::RegisterBenchmark(
        fmt::format("{}/{}/{}", spec.name, what, piece_bytes).c_str(),
        [=](benchmark::State& state) { parse(state, options, text, piece_bytes); });
  }
}

void add_family(const std::shared_ptr<const FamilySpec>& spec) {
  constexpr std::string_view kArgument = "Paris";
  ParserOptions options;
  options.tools_family = spec;
  options.tool_mode = ToolMode::kNative;
  const std::string call = golden_call(*spec, options, "");
  const std::string with_argument = golden_call(*spec, options, kArgument);
  add(*spec, "text", options, prose() + call);
  if (!call.empty()) {
    add(*spec, "calls", options, repeat(call));
  }
  if (!with_argument.empty()) {
    add(*spec, "large_call", options, grow(with_argument, kArgument));
  }
}

/// The recorded streams of real engines, one after the other, as deltas and each in one piece.
struct RecordedStream {
  ParserOptions options;
  std::vector<std::string> pieces;
};

std::vector<RecordedStream> read_recorded(bool whole) {
  std::ifstream file(
      fmt::format("{}/src/stator/parsers/testdata/goldens/recorded.json", STATOR_SOURCE_DIR));
  std::ostringstream text;
  text << file.rdbuf();
  std::vector<RecordedStream> streams;
  const json::Value goldens = *json::parse(text.str());
  for (const auto& golden : goldens.at("cases").elements()) {
    RecordedStream& stream = streams.emplace_back();
    const auto& registry = FamilyRegistry::builtin();
    stream.options.tools_family = *registry.find_tools(golden.at("family").text());
    stream.options.reasoning_family = *registry.find_reasoning(golden.at("reasoning").text());
    stream.options.tool_mode = ToolMode::kNative;
    stream.options.reasoning =
        golden.at("start").text() == "inside" ? ReasoningMode::kStartsInside : ReasoningMode::kOn;
    for (const auto& piece : golden.at("pieces").elements()) {
      const bool special = piece.is_object();
      const std::string_view bytes = special ? piece.at("special").text() : piece.text();
      if (whole && !stream.pieces.empty()) {
        stream.pieces.back() += bytes;
      } else {
        stream.pieces.emplace_back(bytes);
      }
    }
  }
  return streams;
}

void recorded(benchmark::State& state, bool whole) {
  const auto streams = read_recorded(whole);
  std::vector<std::shared_ptr<const OutputParser>> parsers;
  size_t bytes = 0;
  for (const RecordedStream& stream : streams) {
    parsers.push_back(OutputParser::create(stream.options));
    for (const std::string& piece : stream.pieces) {
      bytes += piece.size();
    }
  }
  EventList events;
  for (auto _ : state) {
    for (size_t i = 0; i < streams.size(); ++i) {
      auto choice = parsers[i]->make_state();
      for (const std::string& piece : streams[i].pieces) {
        events.clear();
        parsers[i]->feed(choice, piece, events);
        benchmark::DoNotOptimize(events.all().data());
      }
      parsers[i]->finish(choice, StreamEnd::kStop, events);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}
BENCHMARK_CAPTURE(recorded, deltas, false);
BENCHMARK_CAPTURE(recorded, whole, true);

const bool kRegistered = [] {
  for (const auto& spec : FamilyRegistry::builtin().tools()) {
    add_family(spec);
  }
  return true;
}();

void CreateParser(benchmark::State& state) {
  ParserOptions options;
  options.tools_family = *FamilyRegistry::builtin().find_tools("hermes");
  options.reasoning_family = *FamilyRegistry::builtin().find_reasoning("qwen3");
  options.tool_mode = ToolMode::kNative;
  options.reasoning = ReasoningMode::kOn;
  for (auto _ : state) {
    const auto parser = OutputParser::create(options);
    auto choice = parser->make_state();
    benchmark::DoNotOptimize(choice);
  }
}
BENCHMARK(CreateParser);

}  // namespace
}  // namespace stator::parsers
