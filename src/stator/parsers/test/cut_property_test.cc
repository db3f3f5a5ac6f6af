// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "stator/parsers/output_parser.h"
#include "stator/parsers/test/cutting.h"

// Streams put together from a family's own markers, whole, halved and repeated: where a fuzzer
// needs hours to spell a second marker behind the first, these stand in every text. The seed is
// fixed: the same streams on every machine.

namespace stator::parsers {
namespace {

using Random = std::mt19937;

size_t below(Random& random, size_t bound) {
  return random() % bound;
}

/// What stands between markers in what models write, and what they break.
constexpr std::string_view kBits[] = {
    "f",
    "f.g",
    "a",
    "b",
    "x",
    "1",
    "true",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "\n",
    " ",
    "\n\n",
    "=",
    ">",
    "<",
    "</",
    "/",
    "|",
    ":",
    ",",
    "_",
    "\\",
    "(",
    ")",
    "&lt;",
    "text",
    "\"a\": 1",
    "{\"a\": 1}",
    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "{\"name\": \"f\"",
    "[{\"name\": \"f\"",
    "f(a=1)",
    "\xC3\xA9",
    "\xE2\x9C",
};

std::string make_stream(Random& random, const std::vector<std::string>& markers) {
  std::string text;
  for (size_t count = 1 + below(random, 16); count > 0; --count) {
    std::string_view bit = kBits[below(random, std::size(kBits))];
    if (below(random, 100) < 60) {
      bit = markers[below(random, markers.size())];
    }
    if (below(random, 100) < 6) {
      bit = bit.substr(0, below(random, bit.size() + 1));
    }
    text += bit;
  }
  return text;
}

ParserOptions draw_options(Random& random) {
  static const auto kSchemas = *ToolSchemas::parse(
      R"([{"name":"f","parameters":{"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}}])");
  const auto tools = FamilyRegistry::builtin().tools();
  const auto reasonings = FamilyRegistry::builtin().reasonings();
  ParserOptions options;
  options.tools_family = tools[below(random, tools.size())];
  options.reasoning_family = reasonings[below(random, reasonings.size())];
  options.named_tool = "f";
  options.reasoning = static_cast<ReasoningMode>(below(random, 3));
  options.parallel_calls = below(random, 4) != 0;
  options.schemas = below(random, 2) == 0 ? nullptr : kSchemas;
  options.unknown_tools = below(random, 4) != 0 ? UnknownTools::kKeep : UnknownTools::kDrop;
  constexpr ToolMode kModes[] = {ToolMode::kNative, ToolMode::kNative, ToolMode::kGuidedCalls,
                                 ToolMode::kGuidedArguments};
  options.tool_mode = kModes[below(random, std::size(kModes))];
  if (below(random, 4) == 0) {
    options.special_markers = all_markers(options);
  }
  return options;
}

TEST(CutProperty, EventsDoNotDependOnWhereAStreamIsCut) {
  Random random(20261126);
  constexpr int kParsers = 4000;
  constexpr int kStreams = 60;
  for (int i = 0; i < kParsers; ++i) {
    const ParserOptions options = draw_options(random);
    const auto parser = OutputParser::create(options);
    std::vector<std::string> markers = all_markers(options);
    markers.emplace_back("<think>");
    for (int k = 0; k < kStreams; ++k) {
      const std::string text = make_stream(random, markers);
      const size_t piece_bytes = 1 + below(random, 24);
      const EventList whole = parse_stream(*parser, cut_evenly(text, options, text.size() + 1));
      const EventList pieces = parse_stream(*parser, cut_evenly(text, options, piece_bytes));
      ASSERT_EQ(spell_events(whole), spell_events(pieces))
          << options.tools_family->name << ", " << options.reasoning_family->name << ", mode "
          << static_cast<int>(options.reasoning) << ", tools "
          << static_cast<int>(options.tool_mode) << ", pieces of " << piece_bytes << ", special "
          << options.special_markers.size() << ", parallel " << options.parallel_calls << ":\n"
          << text;
    }
  }
}

}  // namespace
}  // namespace stator::parsers
