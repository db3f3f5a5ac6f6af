// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <type_traits>

#include "stator/parsers/final_message.h"

namespace stator::parsers {
namespace {

static_assert(std::is_nothrow_move_constructible_v<OutputParser::State>);
static_assert(std::is_nothrow_move_assignable_v<OutputParser::State>);
static_assert(!std::is_copy_constructible_v<OutputParser::State>);

ParserOptions options_for(std::string_view family) {
  ParserOptions options;
  options.tools_family = *FamilyRegistry::builtin().find_tools(family);
  options.tool_mode = ToolMode::kNative;
  return options;
}

struct Fed {
  std::string text;
  std::string arguments;
  size_t events = 0;
};

/// What one delta releases at once.
Fed feed(const OutputParser& parser, OutputParser::State& state, std::string_view delta) {
  EventList events;
  parser.feed(state, delta, events);
  Fed fed;
  for (const Event& event : events.all()) {
    ++fed.events;
    fed.text += event.kind == EventKind::kText ? events.bytes(event) : "";
    fed.arguments += event.kind == EventKind::kCallArguments ? events.bytes(event) : "";
  }
  return fed;
}

TEST(OutputParser, ReleasesTextAtOnceAndHoldsOnlyWhatMayBeAMarker) {
  const auto parser = OutputParser::create(options_for("hermes"));
  auto state = parser->make_state();

  EXPECT_EQ(feed(*parser, state, "Hello <b>").text, "Hello <b>");
  EXPECT_EQ(state.held_bytes(), 0U);
  EXPECT_EQ(feed(*parser, state, " and <tool").text, " and ");
  EXPECT_EQ(state.held_bytes(), 5U);
  EXPECT_EQ(feed(*parser, state, "box>").text, "<toolbox>");
  EXPECT_EQ(state.held_bytes(), 0U);
}

TEST(OutputParser, ForwardsArgumentsAsTheyArrive) {
  const auto parser = OutputParser::create(options_for("hermes"));
  auto state = parser->make_state();

  EXPECT_EQ(feed(*parser, state, "<tool_call>\n{\"name\": \"f\", \"arguments\": ").events, 0U);
  EXPECT_EQ(feed(*parser, state, "{\"a\": 1").arguments, "{\"a\": 1");
  EXPECT_EQ(feed(*parser, state, ".50, \"b\": \"x").arguments, ".50, \"b\": \"x");
  EXPECT_EQ(feed(*parser, state, "y\"}}").arguments, "y\"}");
}

TEST(OutputParser, EmitsOneFragmentPerClosedParameter) {
  const auto parser = OutputParser::create(options_for("qwen3_coder"));
  auto state = parser->make_state();

  EXPECT_EQ(feed(*parser, state, "<tool_call>\n<function=f>\n<parameter=a>\n1").events, 0U);
  EXPECT_EQ(feed(*parser, state, "\n</parameter>\n").arguments, "{\"a\":1");
  EXPECT_EQ(feed(*parser, state, "<parameter=b>\n2\n</parameter>").arguments, ",\"b\":2");
  EXPECT_EQ(feed(*parser, state, "</function>").arguments, "}");
}

TEST(OutputParser, PassesThroughWithoutAFamilyOrTools) {
  ParserOptions off = options_for("hermes");
  off.tool_mode = ToolMode::kOff;

  EXPECT_TRUE(OutputParser::create({})->is_pass_through());
  EXPECT_TRUE(OutputParser::create(off)->is_pass_through());
  EXPECT_FALSE(OutputParser::create(options_for("hermes"))->is_pass_through());
}

FinalMessage parse(const ParserOptions& options, std::string_view text, uint32_t choice = 0) {
  const auto parser = OutputParser::create(options);
  auto state = parser->make_state(choice);
  EventList events;
  FinalMessage message;
  parser->feed(state, text, events);
  parser->finish(state, StreamEnd::kStop, events);
  message.add(events);
  return message;
}

constexpr std::string_view kTwoCalls =
    "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
    "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";

TEST(OutputParser, MarkerThatTheBodyOfASpecDoesNotKnowIsText) {
  const auto registry = *FamilyRegistry::with_specs(
      R"({"kind":"tools","name":"odd","body":"tag_params","markers":{"section_begin":["<s>"],)"
      R"("call_begin":["<f="],"name_end":[">"],"key_begin":["<p="],"in_text":["!"]}})");
  ParserOptions options;
  options.tools_family = *registry.find_tools("odd");
  options.tool_mode = ToolMode::kNative;

  EXPECT_EQ(parse(options, "Well! So!").content, "Well! So!");
}

TEST(OutputParser, MarkerOfAnotherFamilyEndsReasoningAndIsText) {
  ParserOptions options = options_for("functionary_v3_2");  // any first word may begin a call
  options.reasoning_family = *FamilyRegistry::builtin().find_reasoning("kimi_k25");
  options.reasoning = ReasoningMode::kStartsInside;

  const FinalMessage message = parse(options, "thought<|tool_calls_section_begin|> no call");
  EXPECT_EQ(message.reasoning, "thought");
  EXPECT_EQ(message.content, "<|tool_calls_section_begin|> no call");
}

TEST(OutputParser, MakesIdsThatDependOnSeedChoiceAndCallOnly) {
  ParserOptions options = options_for("hermes");
  std::set<std::string> ids;
  for (const uint64_t seed : {1U, 2U}) {
    options.id_seed = seed;
    for (const uint32_t choice : {0U, 1U}) {
      const FinalMessage first = parse(options, kTwoCalls, choice);
      EXPECT_EQ(first, parse(options, kTwoCalls, choice));
      for (const auto& call : first.calls) {
        EXPECT_THAT(call.id, testing::MatchesRegex("call_[A-Za-z0-9]+"));
        EXPECT_EQ(call.id.size(), 29U);
        ids.insert(call.id);
      }
    }
  }
  EXPECT_EQ(ids.size(), 8U);
}

TEST(OutputParser, MakesNineCharactersForMistral) {
  const FinalMessage message = parse(options_for("mistral"), "[TOOL_CALLS]f{}");

  ASSERT_EQ(message.calls.size(), 1U);
  EXPECT_THAT(message.calls[0].id, testing::MatchesRegex("[A-Za-z0-9]+"));
  EXPECT_EQ(message.calls[0].id.size(), 9U);
}

TEST(OutputParser, DropsACallWhoseNameIsTooLong) {
  const std::string name(kMaxCallNameBytes + 1, 'n');
  const FinalMessage message =
      parse(options_for("hermes"),
            "a<tool_call>{\"name\":\"" + name + "\",\"arguments\":{\"x\":1}}</tool_call>b");

  EXPECT_EQ(message.content, "ab");
  EXPECT_TRUE(message.calls.empty());
}

TEST(OutputParser, RefusesArgumentsDeeperThanTheLimit) {
  const std::string deep(10'000, '[');
  const FinalMessage message =
      parse(options_for("hermes"),
            "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + deep + "}}</tool_call>after");

  ASSERT_EQ(message.calls.size(), 1U);
  EXPECT_FALSE(message.calls[0].complete);
  EXPECT_EQ(message.content, "after");
}

TEST(OutputParser, ReleasesALongRunOfWhiteSpaceInsteadOfHoldingIt) {
  const auto parser = OutputParser::create(options_for("hermes"));
  auto state = parser->make_state();
  const std::string space(10'000, ' ');

  const Fed fed = feed(*parser, state, space);

  EXPECT_GT(fed.text.size(), 0U);
  EXPECT_LE(state.held_bytes(), 4096U);
}

TEST(OutputParser, DropsAValueThatIsTooLargeToHold) {
  std::string text = "<tool_call><function=f><parameter=a>";
  text.append(kMaxHeldBytes + 1, 'x');
  const FinalMessage message =
      parse(options_for("qwen3_coder"), text + "</parameter></function></tool_call>after");

  EXPECT_TRUE(message.calls.empty());
  EXPECT_EQ(message.content, "after");
}

TEST(OutputParser, TakesALongHeaderWithoutAMessageMarkerForTheMessage) {
  const std::string long_text = "{\"a\": \"" + std::string(4 * kMaxCallNameBytes, 'x') + "\"}";
  const ParserOptions options = options_for("harmony");
  EXPECT_EQ(parse(options, "<|channel|>final " + long_text + "<|return|>").content, long_text);

  const auto parser = OutputParser::create(options);
  auto state = parser->make_state();
  std::string content = feed(*parser, state, "<|channel|>final ").text;
  for (const char c : long_text) {
    content += feed(*parser, state, std::string_view(&c, 1)).text;
  }
  EXPECT_EQ(content, long_text);
}

TEST(OutputParser, StopsLookingForUnmarkedCallsAfterManyFalseOnes) {
  const auto parser = OutputParser::create(options_for("pythonic"));
  auto state = parser->make_state();
  feed(*parser, state, "So: ");

  for (int round = 0; round < 16; ++round) {
    EXPECT_EQ(feed(*parser, state, "[f(").text, "");
    EXPECT_EQ(feed(*parser, state, "1)]").text, "[f(1)]");
  }

  EXPECT_EQ(feed(*parser, state, "[f(").text, "[f(");
  EXPECT_EQ(state.held_bytes(), 0U);
}

TEST(OutputParser, GivesHeldReasoningOutAsContentIfThereIsNothingElse) {
  ParserOptions options;
  options.reasoning_family = *FamilyRegistry::builtin().find_reasoning("basic");
  options.reasoning = ReasoningMode::kOn;
  options.force_nonempty_content = true;

  EXPECT_EQ(parse(options, "<think>only this</think>").content, "only this");
  const FinalMessage both = parse(options, "<think>first</think>then");
  EXPECT_EQ(both.reasoning, "first");
  EXPECT_EQ(both.content, "then");
}

TEST(OutputParser, CountsLettersOfABoundMarkerAsTextOnlyWhenIdsAreKnown) {
  ParserOptions options = options_for("mistral");
  EXPECT_EQ(parse(options, "[TOOL_CALLS]f{}").calls.size(), 1U);

  options.special_markers = {"[TOOL_CALLS]"};
  const FinalMessage letters = parse(options, "[TOOL_CALLS]f{}");
  EXPECT_TRUE(letters.calls.empty());
  EXPECT_EQ(letters.content, "[TOOL_CALLS]f{}");
}

TEST(EventList, HoldsOnlyTheBytesOfItsEvents) {
  constexpr std::string_view kId = "call_of_a_longer_id";
  constexpr std::string_view kName = "get_weather";
  EventList events;
  for (uint32_t index = 0; index < 20; ++index) {
    events.begin_call(index, kId, kName);
    EXPECT_EQ(events.size_bytes(), (index + 1) * (kId.size() + kName.size()));
  }
}

}  // namespace
}  // namespace stator::parsers
