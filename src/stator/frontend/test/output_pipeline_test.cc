// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/output_pipeline.h"

#include <gtest/gtest.h>

#include "stator/frontend/test/marker_tokenizer.h"
#include "stator/parsers/final_message.h"

namespace stator::frontend {
namespace {

using api::ChoiceFinish;
using inference::FinishReason;
using parsers::ReasoningMode;
using parsers::ToolMode;

/// What all feeds of one choice gave.
struct Answer {
  parsers::FinalMessage message;
  ChoiceFinish finish = ChoiceFinish::kNone;
  uint32_t tokens = 0;
  uint32_t reasoning_tokens = 0;
};

class OutputPipelineTest : public ::testing::Test {
 protected:
  void use(const char* tools, const char* reasoning, ReasoningMode mode = ReasoningMode::kOn) {
    const auto& families = parsers::FamilyRegistry::builtin();
    parsers::ParserOptions options;
    format_ = std::make_unique<OutputFormat>();
    if (tools != nullptr) {
      options.tools_family = *families.find_tools(tools);
      options.tool_mode = ToolMode::kNative;
      format_->markers +=
          choose_parsers(families, {.tools = tools, .reasoning = "none"}, *tokenizer_)
              ->tool_markers;
    }
    if (reasoning != nullptr) {
      options.reasoning_family = *families.find_reasoning(reasoning);
      options.reasoning = mode;
      format_->markers +=
          choose_parsers(families, {.tools = "none", .reasoning = reasoning}, *tokenizer_)
              ->reasoning_markers;
    }
    options.special_markers = format_->markers.texts;
    format_->starts_inside = mode == ReasoningMode::kStartsInside;
    format_->parser = parsers::OutputParser::create(std::move(options));
  }
  void stop_at(const std::vector<std::string>& stops) {
    stops_ = *parsers::StopMatcher::create(stops);
  }
  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> tokens;
    EXPECT_TRUE(tokenizer_->encode(text, {}, tokens).has_value());
    return tokens;
  }
  /// Feeds `tokens` in batches of `step`, the last with `finish`.
  Answer run(const std::vector<TokenId>& tokens, FinishReason finish, size_t step = 1) {
    OutputPipeline pipeline({.tokenizer = *tokenizer_,
                             .stops = stops_.get(),
                             .format = format_.get(),
                             .options = options_},
                            0);
    Answer answer;
    for (size_t at = 0; at < tokens.size(); at += step) {
      const auto batch = std::span(tokens).subspan(at, std::min(step, tokens.size() - at));
      const bool last = at + step >= tokens.size();
      PipelineOutput out;
      const auto result = pipeline.feed(batch, last ? finish : FinishReason::kNone, false, out);
      answer.message.add(out.events);
      answer.tokens += result.decoded.tokens_used;
      answer.reasoning_tokens += result.reasoning_tokens;
      answer.finish = result.finish;
      if (result.finish != ChoiceFinish::kNone) {
        break;
      }
    }
    return answer;
  }
  Answer say(std::string_view text, size_t step = 1) {
    auto tokens = encode(text);
    tokens.push_back(demo_assets()->eos_token_ids.front());
    return run(tokens, FinishReason::kStop, step);
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = make_marker_tokenizer({});
  std::shared_ptr<const parsers::StopMatcher> stops_;
  std::unique_ptr<OutputFormat> format_;
  DecodeOptions options_;
};

constexpr std::string_view kThinkThenCall =
    "<think>\nParis, so I ask.\n</think>\n\nLet me see.\n<tool_call>\n"
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

TEST_F(OutputPipelineTest, SplitsReasoningContentAndCallsWhateverTheBatches) {
  use("hermes", "basic");
  for (const size_t step : {1, 2, 3, 7, 1000}) {
    const Answer answer = say(kThinkThenCall, step);
    EXPECT_EQ(answer.message.reasoning, "Paris, so I ask.") << step;
    EXPECT_EQ(answer.message.content, "\nLet me see.\n") << step;
    ASSERT_EQ(answer.message.calls.size(), 1U) << step;
    EXPECT_EQ(answer.message.calls[0].name, "get_weather");
    EXPECT_EQ(answer.message.calls[0].arguments, "{\"city\": \"Paris\"}");
    EXPECT_EQ(answer.finish, ChoiceFinish::kToolCalls);
    EXPECT_EQ(answer.tokens, encode(kThinkThenCall).size() + 1);
  }
}

TEST_F(OutputPipelineTest, CountsTheTokensOfReasoningWithoutItsMarkers) {
  use(nullptr, "basic");
  const auto inside = encode("I think so").size();
  EXPECT_EQ(run(encode("I think so"), FinishReason::kLength).reasoning_tokens, 0U);
  for (const size_t step : {1, 4, 1000}) {
    auto tokens = encode("<think>");
    const auto thought = encode("I think so");
    const auto rest = encode("</think>Yes, it is.");
    tokens.insert(tokens.end(), thought.begin(), thought.end());
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    EXPECT_EQ(run(tokens, FinishReason::kLength, step).reasoning_tokens, inside) << step;
  }
}

TEST_F(OutputPipelineTest, ReasoningThatThePromptOpenedIsCountedFromTheFirstToken) {
  use(nullptr, "basic", ReasoningMode::kStartsInside);
  const Answer answer = run(encode("I think so"), FinishReason::kLength);
  EXPECT_EQ(answer.message.reasoning, "I think so");
  EXPECT_EQ(answer.reasoning_tokens, encode("I think so").size());
  EXPECT_EQ(answer.finish, ChoiceFinish::kLength);
}

TEST_F(OutputPipelineTest, ACallCutByTheLimitIsNoFinishedCall) {
  use("hermes", nullptr);
  const Answer answer =
      run(encode("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Par"),
          FinishReason::kLength);
  EXPECT_EQ(answer.finish, ChoiceFinish::kLength);
  const Answer stopped = say("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Par");
  EXPECT_EQ(stopped.finish, ChoiceFinish::kLength);
}

TEST_F(OutputPipelineTest, ACallOfANamedFunctionFinishesAsStop) {
  use("hermes", nullptr);
  format_->named_call = true;
  EXPECT_EQ(say(kThinkThenCall).finish, ChoiceFinish::kStop);
}

TEST_F(OutputPipelineTest, StopStringsEndReasoningAndCallsAndNeverShow) {
  use("hermes", "basic");
  stop_at({"so I"});
  const Answer thought = say(kThinkThenCall);
  EXPECT_EQ(thought.message.reasoning, "Paris, ");
  EXPECT_EQ(thought.message.content, "");
  EXPECT_EQ(thought.finish, ChoiceFinish::kStop);
  stop_at({"me see"});
  EXPECT_EQ(say(kThinkThenCall).message.content, "\nLet ");
  stop_at({"Paris\""});
  const Answer call = say(kThinkThenCall);
  EXPECT_EQ(call.finish, ChoiceFinish::kLength) << "the call is incomplete";
  ASSERT_EQ(call.message.calls.size(), 1U);
  EXPECT_EQ(call.message.calls[0].arguments, "{\"city\": \"");
}

TEST_F(OutputPipelineTest, MarkersCountOnlyAsTheirTokens) {
  tokenizer_ = make_marker_tokenizer(
      {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|call|>", "<|constrain|>"});
  use("harmony", nullptr);
  std::vector<TokenId> tokens = encode("<|channel|>final<|message|>Write ");
  const auto& literal = demo_assets()->tokenizer;  // knows no markers: ordinary tokens
  ASSERT_TRUE(literal->encode("<|end|> yourself", {}, tokens).has_value());
  const Answer answer = run(tokens, FinishReason::kLength);
  EXPECT_EQ(answer.message.content, "Write <|end|> yourself");
}

TEST_F(OutputPipelineTest, AnEndTokenThatIsAMarkerReachesTheParser) {
  tokenizer_ = make_marker_tokenizer(
      {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|call|>", "<|constrain|>"});
  use("harmony", nullptr);
  const auto tokens = encode(
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>");
  for (const size_t step : {1, 5, 1000}) {
    const Answer answer = run(tokens, FinishReason::kStop, step);
    EXPECT_EQ(answer.message.reasoning, "Hm.");
    ASSERT_EQ(answer.message.calls.size(), 1U);
    EXPECT_EQ(answer.message.calls[0].name, "f");
    EXPECT_EQ(answer.message.calls[0].arguments, "{\"a\":1}");
    EXPECT_EQ(answer.finish, ChoiceFinish::kToolCalls);
    EXPECT_EQ(answer.tokens, tokens.size());
  }
}

TEST_F(OutputPipelineTest, MarkersSurviveStopStringsThatBeginInThem) {
  tokenizer_ = make_marker_tokenizer(
      {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|call|>", "<|constrain|>"});
  use("harmony", nullptr);
  stop_at({"ge|>Never", "nd|>x"});
  const Answer answer = run(encode("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|"
                                   "channel|>final<|message|>Yes"),
                            FinishReason::kLength);
  EXPECT_EQ(answer.message.reasoning, "Hm.");
  EXPECT_EQ(answer.message.content, "Yes");
}

TEST_F(OutputPipelineTest, OtherSpecialTokensAreHiddenUnlessAskedFor) {
  use("hermes", nullptr);
  auto tokens = encode("One<|im_start|>two");
  EXPECT_EQ(run(tokens, FinishReason::kLength).message.content, "Onetwo");
  EXPECT_EQ(run(tokens, FinishReason::kLength).tokens, tokens.size());
  format_->hides_special = false;
  EXPECT_EQ(run(tokens, FinishReason::kLength).message.content, "One<|im_start|>two");
}

TEST_F(OutputPipelineTest, WithoutAFormatEverythingIsText) {
  OutputPipeline pipeline({.tokenizer = *tokenizer_, .options = {}}, 0);
  PipelineOutput out;
  const auto result = pipeline.feed(encode("<think>Hm</think>"), FinishReason::kLength, false, out);
  EXPECT_EQ(out.text, "<think>Hm</think>");
  EXPECT_TRUE(out.events.empty());
  EXPECT_EQ(result.finish, ChoiceFinish::kLength);
  EXPECT_EQ(result.reasoning_tokens, 0U);
}

}  // namespace
}  // namespace stator::frontend
