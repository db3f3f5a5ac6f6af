// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/reasoning_args.h"

#include <gtest/gtest.h>

namespace stator::chat_template {
namespace {

constexpr std::string_view kOn =
    R"({"thinking": true, "enable_thinking": true, "thinking_mode": "enabled"})";
constexpr std::string_view kOff =
    R"({"thinking": false, "enable_thinking": false, "thinking_mode": "disabled"})";

std::string normalize(const ReasoningArgs& args) {
  auto result = normalize_reasoning_args(args);
  return result ? *result : result.error().message();
}

TEST(ReasoningArgs, NothingGivenSaysNothing) {
  EXPECT_EQ(normalize({}), "");
  EXPECT_EQ(normalize({.kwargs_json = "{}"}), "");
}

TEST(ReasoningArgs, RootThinkingIsWrittenInEveryDialect) {
  for (const std::string_view on :
       {"true", "1", R"("enabled")", R"("Yes")", R"({"type":"enabled"})"}) {
    EXPECT_EQ(normalize({.thinking_json = on}), kOn) << on;
  }
  for (const std::string_view off : {"false", "0", R"("off")", R"({"type":"disabled"})"}) {
    EXPECT_EQ(normalize({.thinking_json = off}), kOff) << off;
  }
}

TEST(ReasoningArgs, TextThatOnlyContainsAWordDecidesNothing) {
  EXPECT_EQ(normalize({.thinking_json = R"({"budget":"true story, enabled"})"}), "");
}

TEST(ReasoningArgs, AdaptiveRemovesTheBooleans) {
  EXPECT_EQ(normalize({.thinking_json = R"({"type":"adaptive"})",
                       .kwargs_json = R"({"thinking":true,"enable_thinking":false,"a":1})"}),
            R"({"a": 1, "thinking_mode": "adaptive"})");
}

TEST(ReasoningArgs, RootThinkingWinsOverKwargs) {
  EXPECT_EQ(normalize({.thinking_json = "false", .kwargs_json = R"({"enable_thinking":true})"}),
            R"({"enable_thinking": false, "thinking": false, "thinking_mode": "disabled"})");
}

TEST(ReasoningArgs, KwargsWinOverTheEffort) {
  EXPECT_EQ(
      normalize({.reasoning_effort = "high", .kwargs_json = R"({"thinking_mode":"disabled"})"}),
      R"({"thinking_mode": "disabled", "thinking": false, "enable_thinking": false, )"
      R"("reasoning_effort": "high"})");
}

TEST(ReasoningArgs, EffortDecidesAloneAndRootWins) {
  EXPECT_EQ(normalize({.reasoning_effort = "none", .kwargs_json = R"({"reasoning_effort":"low"})"}),
            R"({"reasoning_effort": "none", "thinking": false, "enable_thinking": false, )"
            R"("thinking_mode": "disabled"})");
  EXPECT_EQ(normalize({.kwargs_json = R"({"reasoning_effort":"low"})"}),
            R"({"reasoning_effort": "low", "thinking": true, "enable_thinking": true, )"
            R"("thinking_mode": "enabled"})");
}

TEST(ReasoningArgs, TheWorkersDefaultComesLast) {
  EXPECT_EQ(normalize({.default_mode = "disabled"}), kOff);
  EXPECT_EQ(normalize({.thinking_json = "true", .default_mode = "disabled"}), kOn);
}

TEST(ReasoningArgs, BrokenInputIsAnError) {
  for (const ReasoningArgs& args :
       {ReasoningArgs{.kwargs_json = "[1]"}, ReasoningArgs{.kwargs_json = "{"},
        ReasoningArgs{.thinking_json = "tru"}}) {
    const auto result = normalize_reasoning_args(args);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace stator::chat_template
