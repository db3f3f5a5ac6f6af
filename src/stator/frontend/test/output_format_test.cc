// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/output_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/api/request_parser.h"
#include "stator/frontend/test/marker_tokenizer.h"
#include "stator/parsers/final_message.h"

namespace stator::frontend {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}])";

class OutputFormatTest : public ::testing::Test {
 protected:
  void use(const char* tools, const char* reasoning) {
    parsers_ = *choose_parsers(parsers::FamilyRegistry::builtin(),
                               {.tools = tools, .reasoning = reasoning}, *demo_assets()->tokenizer);
  }
  static api::ChatRequest request(const std::string& fields) {
    std::string body = R"({"model":"m","messages":[{"role":"user","content":"Hi"}])" + fields + "}";
    auto parsed = api::parse_chat_request(body, {.guided_decoding = true});
    EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
    return std::move(*parsed);
  }
  std::unique_ptr<const OutputFormat> format(const std::string& fields,
                                             std::string_view tail = "") {
    const api::ChatRequest chat = request(fields);
    auto made = make_output_format(parsers_, {.request = chat, .prompt_tail = tail, .id_seed = 7});
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return std::move(*made);
  }
  /// What becomes of an answer.
  parsers::FinalMessage read(const std::string& fields, std::string_view answer,
                             std::string_view tail = "") {
    const auto made = format(fields, tail);
    parsers::FinalMessage message;
    if (made == nullptr) {
      message.content = answer;
      return message;
    }
    auto state = made->parser->make_state();
    parsers::EventList events;
    made->parser->feed(state, answer, events);
    made->parser->finish(state, parsers::StreamEnd::kStop, events);
    message.add(events);
    return message;
  }

  ModelParsers parsers_;
};

constexpr std::string_view kCall = R"(<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>)";

TEST_F(OutputFormatTest, IsPlainTextWithoutParsers) {
  EXPECT_EQ(format(kTools), nullptr);
}

TEST_F(OutputFormatTest, ToolCallsAreLookedForOnlyIfThereAreTools) {
  use("hermes", "none");
  EXPECT_EQ(format(""), nullptr);
  EXPECT_EQ(read(kTools, kCall).calls.size(), 1U);
  EXPECT_EQ(read(std::string(kTools) + R"(,"tool_choice":"none")", kCall).content, kCall);
}

TEST_F(OutputFormatTest, RequiredAndNamedCallsArePlainJson) {
  use("hermes", "none");
  const auto required = read(std::string(kTools) + R"(,"tool_choice":"required")",
                             R"([{"name":"f","parameters":{"a":1}}])");
  ASSERT_EQ(required.calls.size(), 1U);
  EXPECT_EQ(required.calls[0].arguments, R"({"a":1})");
  const std::string named =
      std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})";
  const auto call = read(named, R"({"a":2})");
  ASSERT_EQ(call.calls.size(), 1U);
  EXPECT_EQ(call.calls[0].name, "f");
  EXPECT_EQ(call.calls[0].arguments, R"({"a":2})");
  EXPECT_TRUE(format(named)->named_call);
}

TEST_F(OutputFormatTest, WithoutParallelCallsOnlyTheFirstIsLetThrough) {
  use("hermes", "none");
  const std::string two = std::string(kCall) + std::string(kCall);
  EXPECT_EQ(read(kTools, two).calls.size(), 2U);
  EXPECT_EQ(read(std::string(kTools) + R"(,"parallel_tool_calls":false)", two).calls.size(), 1U);
}

TEST_F(OutputFormatTest, AFamilyThatFramesEverythingIsAlwaysOn) {
  use("harmony", "auto");
  EXPECT_NE(format(""), nullptr);
  EXPECT_EQ(read("",
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                 "<|message|>Yes.")
                .content,
            "Yes.");
}

TEST_F(OutputFormatTest, WithToolChoiceNoneWhatLooksLikeACallIsNone) {
  const std::string none = std::string(kTools) + R"(,"tool_choice":"none")";
  for (const auto& [family, call] : std::vector<std::pair<const char*, std::string>>{
           {"hermes", std::string(kCall)},
           {"mistral", R"([TOOL_CALLS]f{"a":1})"},
           {"qwen3_coder",
            "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>"},
           {"pythonic", "[f(a=1)]"},
           {"llama3_json", R"({"name":"f","parameters":{"a":1}})"}}) {
    use(family, "none");
    EXPECT_EQ(read(kTools, call).calls.size(), 1U) << family;
    const auto message = read(none, call);
    EXPECT_TRUE(message.calls.empty()) << family;
    EXPECT_EQ(message.content, call) << family;
  }
  use("harmony", "auto");
  constexpr std::string_view kChannels =
      "<|channel|>commentary "
      "to=functions.f<|message|>{\"a\":1}<|call|><|start|>assistant<|channel|>"
      "final<|message|>Yes.";
  EXPECT_EQ(read(kTools, kChannels).calls.size(), 1U);
  EXPECT_TRUE(read(none, kChannels).calls.empty());
}

TEST_F(OutputFormatTest, ReasoningThatThePromptOpenedIsReasoningFromTheStart) {
  use("none", "basic");
  EXPECT_EQ(read("", "Hm.</think>Yes.", "<|im_start|>assistant\n<think>\n").reasoning, "Hm.");
  EXPECT_EQ(read("", "<think>Hm.</think>Yes.", "<|im_start|>assistant\n").reasoning, "Hm.");
  EXPECT_EQ(read("", "Hm.", "<|im_start|>assistant\n").content, "Hm.");
}

TEST_F(OutputFormatTest, AnswersWithoutToolsShareTheirParser) {
  use("hermes", "basic");
  EXPECT_EQ(format("")->parser, format("")->parser);
  EXPECT_NE(format("")->parser, format("", "<think>")->parser);
  EXPECT_NE(format(kTools)->parser, format(kTools)->parser);
}

TEST_F(OutputFormatTest, ReasoningIsSwitchedOffInEveryDialect) {
  use("none", "deepseek_r1");
  EXPECT_EQ(read("", "Hm.</think>Yes.").reasoning, "Hm.");
  for (const char* off :
       {R"(,"thinking":false)", R"(,"thinking":{"type":"disabled"})",
        R"(,"reasoning_effort":"none")", R"(,"chat_template_kwargs":{"thinking":false})",
        R"(,"chat_template_kwargs":{"enable_thinking":"no"})",
        R"(,"chat_template_kwargs":{"thinking_mode":"disabled"})",
        R"(,"chat_template_kwargs":{"thinking_mode":"chat"})",
        R"(,"thinking":false,"chat_template_kwargs":{"thinking":true})"}) {
    EXPECT_EQ(read(off, "Yes.").content, "Yes.") << off;
  }
  for (const char* on :
       {R"(,"thinking":true)", R"(,"thinking":{"type":"adaptive"})", R"(,"reasoning_effort":"low")",
        R"(,"chat_template_kwargs":{"enable_thinking":1})",
        R"(,"thinking":true,"chat_template_kwargs":{"thinking":false})"}) {
    EXPECT_EQ(read(on, "Hm.</think>Yes.").reasoning, "Hm.") << on;
  }
}

TEST_F(OutputFormatTest, AContinuedMessageSaysWhetherItIsReasoning) {
  use("none", "deepseek_r1");
  const std::string continued =
      R"(,"continue_final_message":true,"messages":[{"role":"assistant","content":"x"}])";
  EXPECT_EQ(read(continued, " more</think>Yes.", "<think>I wonder").reasoning, " more");
  EXPECT_EQ(read(continued, " more", "<think>I wonder</think>Well,").content, " more");
}

TEST_F(OutputFormatTest, AConstrainedAnswerMayLeaveItsReasoningOut) {
  use("none", "deepseek_r1");
  api::ChatRequest chat = request("");
  const auto content = [&](bool answers_json) {
    const auto made = make_output_format(
        parsers_, {.request = chat, .prompt_tail = "", .answers_json = answers_json});
    auto state = (*made)->parser->make_state();
    parsers::EventList events;
    (*made)->parser->feed(state, R"({"a":1})", events);
    (*made)->parser->finish(state, parsers::StreamEnd::kStop, events);
    parsers::FinalMessage message;
    message.add(events);
    return message.content;
  };
  EXPECT_EQ(content(true), R"({"a":1})");
  EXPECT_EQ(content(false), "");
}

TEST_F(OutputFormatTest, BrokenToolParametersAreTheClients) {
  use("hermes", "none");
  const api::ChatRequest chat = request(kTools);
  api::ChatRequest broken = chat;
  broken.chat.tools_json = "[{]";
  EXPECT_FALSE(make_output_format(parsers_, {.request = broken, .prompt_tail = ""}).has_value());
}

// ---- structured output

TEST(StructuredOutputs, AreVllmsMember) {
  std::string body = R"({"model":"m","messages":[{"role":"user","content":"Hi"}],)"
                     R"("guided_regex":"[0-9]+"})";
  const auto request = api::parse_chat_request(body, {.guided_decoding = true});
  ASSERT_TRUE(request.has_value()) << request.error().message();
  const auto made = make_structured_outputs(request->options.structured_output, &*request, true);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(*made, R"({"regex":"[0-9]+"})");
  const auto refused =
      make_structured_outputs(request->options.structured_output, &*request, false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_EQ(refused.error().param, "guided_regex");
  EXPECT_THAT(refused.error().message(), HasSubstr("guided decoding"));
}

TEST(StructuredOutputs, ARequiredCallIsAShapeAndAFreeOneIsNot) {
  const auto make = [](const std::string& fields) {
    std::string body = R"({"model":"m","messages":[{"role":"user","content":"Hi"}])" +
                       std::string(kTools) + fields + "}";
    const auto request = api::parse_chat_request(body, {.guided_decoding = true});
    EXPECT_TRUE(request.has_value()) << request.error().message();
    return make_structured_outputs(request->options.structured_output, &*request, true);
  };
  EXPECT_EQ(*make(""), "");
  EXPECT_EQ(*make(R"(,"tool_choice":"auto")"), "");
  EXPECT_EQ(*make(R"(,"tool_choice":"none")"), "");
  EXPECT_THAT(*make(R"(,"tool_choice":"required")"), HasSubstr("\"minItems\""));
  EXPECT_THAT(*make(R"(,"tool_choice":"required","parallel_tool_calls":false)"),
              HasSubstr("\"maxItems\""));
  EXPECT_THAT(*make(R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"),
              HasSubstr("\"integer\""));
  const auto both = make(R"(,"tool_choice":"required","guided_regex":"a")");
  ASSERT_FALSE(both.has_value());
  EXPECT_EQ(both.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::frontend
