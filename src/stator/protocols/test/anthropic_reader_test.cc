// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "stator/protocols/anthropic/reader.h"

namespace stator::protocols::anthropic {
namespace {

using api::ToolChoice;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kHi = R"("messages":[{"role":"user","content":"Hi"}])";

/// A body with these members beside model and max_tokens.
std::string body_of(std::string_view members) {
  return R"({"model":"m","max_tokens":9,)" + std::string(members) + "}";
}

Reading read(std::string_view members) {
  std::string body = body_of(members);
  auto reading = read_messages(body, {.limits = {.guided_decoding = true}});
  EXPECT_TRUE(reading.has_value()) << (reading ? "" : reading.error().message());
  return reading ? std::move(*reading) : Reading();
}

/// What is wrong with it.
std::string refusal(std::string_view members) {
  std::string body = body_of(members);
  const auto reading = read_messages(body, {.limits = {.guided_decoding = true}});
  return reading ? "accepted" : reading.error().message();
}

std::string messages_of(std::string_view messages) {
  return read(R"("messages":[)" + std::string(messages) + "]").request.chat.messages_json;
}

TEST(AnthropicReader, CopiesTextAsItIsSpelled) {
  EXPECT_EQ(messages_of(R"({"role":"user","content":"Z\u00fcrich \"é\"\n"})"),
            R"([{"role":"user","content":"Z\u00fcrich \"é\"\n"}])");
}

TEST(AnthropicReader, JoinsTheBlocksOfSystem) {
  const std::string json =
      read(R"("system":[{"type":"text","text":"a\\"},{"type":"text","text":"b"}],)" +
           std::string(kHi))
          .request.chat.messages_json;

  EXPECT_EQ(json, R"([{"role":"system","content":"a\\\nb"},{"role":"user","content":"Hi"}])");
}

TEST(AnthropicReader, DropsABillingHeaderWhereverItsLineEnds) {
  const auto system = [](std::string_view value) {
    return read(R"("system":)" + std::string(value) + "," + std::string(kHi))
        .request.chat.messages_json;
  };
  const std::string kept = R"([{"role":"system","content":"Be kind."},)"
                           R"({"role":"user","content":"Hi"}])";

  EXPECT_EQ(system(R"("x-anthropic-billing-header: a=1; b\\n=2;\nBe kind.")"), kept);
  EXPECT_EQ(system(R"([{"type":"text","text":"x-anthropic-billing-header: a=1"},)"
                   R"({"type":"text","text":"Be kind."}])"),
            kept);
  EXPECT_EQ(system(R"("x-anthropic-billing-header: a=1")"), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(system(R"("x-anthropic-billing-header: a=1\n")"),
            R"([{"role":"user","content":"Hi"}])");
}

TEST(AnthropicReader, KeepsABillingHeaderIfItIsTold) {
  std::string body = body_of(R"("system":"x-anthropic-billing-header: a",)" + std::string(kHi));

  const auto reading = read_messages(body, {.limits = {}, .strip_preamble = false});

  ASSERT_TRUE(reading.has_value());
  EXPECT_THAT(reading->request.chat.messages_json, HasSubstr("billing-header"));
}

TEST(AnthropicReader, MakesOneTurnOfMessagesOfTheSameRole) {
  EXPECT_EQ(messages_of(R"({"role":"user","content":"a"},)"
                        R"({"role":"user","content":[{"type":"text","text":"b"}]},)"
                        R"({"role":"assistant","content":"c"},{"role":"assistant","content":"d"},)"
                        R"({"role":"user","content":"e"})"),
            R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":"c\nd"},{"role":"user","content":"e"}])");
}

TEST(AnthropicReader, TurnsCallsAndResultsIntoOpenAisMessages) {
  const std::string json = messages_of(
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},)"
      R"({"type":"redacted_thinking","data":"x"},{"type":"text","text":"look"},)"
      R"({"type":"tool_use","id":"t1","name":"f","input":{"a":"b\"", "n":1.0}}]},)"
      R"({"role":"user","content":[{"type":"text","text":"before"},)"
      R"({"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r1"},)"
      R"({"type":"text","text":"r2"}]},{"type":"text","text":"after"}]})");

  EXPECT_EQ(json, R"([{"role":"assistant","content":"look","reasoning_content":"hm","tool_calls":[)"
                  R"({"id":"t1","type":"function","function":{"name":"f",)"
                  R"("arguments":"{\"a\":\"b\\\"\", \"n\":1.0}"}}]},)"
                  R"({"role":"user","content":"before"},)"
                  R"({"role":"tool","tool_call_id":"t1","content":"r1\nr2"},)"
                  R"({"role":"user","content":"after"}])");
}

TEST(AnthropicReader, TakesImagesWhereTheyStand) {
  const Reading reading =
      read(R"("system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
           R"({"type":"image","source":{"type":"base64","media_type":"image\/png","data":"AAAA"}},)"
           R"({"type":"text","text":"b"},{"type":"tool_result","tool_use_id":"t","content":[)"
           R"({"type":"text","text":"r"},{"type":"image","source":{"type":"url",)"
           R"("url":"https://x/y.png"}}],"is_error":true},{"type":"document","source":)"
           R"({"type":"text","media_type":"text/plain","data":"d"}}]}])");

  const api::ChatInput& chat = reading.request.chat;
  EXPECT_EQ(chat.messages_json,
            R"([{"role":"system","content":"s"},{"role":"user","content":[)"
            R"({"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]},)"
            R"({"role":"tool","tool_call_id":"t","content":[{"type":"text","text":"Error: r"},)"
            R"({"type":"image"}]},{"role":"user","content":"d"}])");
  ASSERT_EQ(chat.media.size(), 2U);
  EXPECT_EQ(chat.media[0].source, "data:image/png;base64,AAAA");
  EXPECT_EQ(chat.media[0].path, "messages[0].content[1]");
  EXPECT_EQ(chat.media[1].source, "https://x/y.png");
  EXPECT_EQ(chat.media[1].path, "messages[0].content[3].content[1]");
}

TEST(AnthropicReader, TellsTheModelThatAResultIsAnError) {
  const auto result = [](std::string_view members) {
    return messages_of(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t",)" +
                       std::string(members) + "}]}");
  };

  EXPECT_THAT(result(R"("is_error":true,"content":"gone")"), HasSubstr(R"("Error: gone")"));
  EXPECT_THAT(result(R"("content":"error 7","is_error":true)"), HasSubstr(R"("error 7")"));
  EXPECT_THAT(result(R"("is_error":true)"), HasSubstr(R"("content":"Error: ")"));
  EXPECT_THAT(result(R"("is_error":false)"), HasSubstr(R"("content":"")"));
}

TEST(AnthropicReader, ContinuesAnAnswerThatWasBegun) {
  const Reading begun = read(R"("messages":[{"role":"user","content":"q"},)"
                             R"({"role":"assistant","content":"The"}])");
  EXPECT_TRUE(begun.request.chat.continue_final_message);
  EXPECT_FALSE(begun.request.chat.add_generation_prompt);

  const Reading called =
      read(R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":[)"
           R"({"type":"tool_use","id":"t","name":"f","input":{}}]}])");
  EXPECT_FALSE(called.request.chat.continue_final_message);
}

TEST(AnthropicReader, ReadsContentThatComesBeforeItsRole) {
  EXPECT_EQ(messages_of(R"({"content":[{"text":"a","type":"text"}],"role":"user"})"),
            R"([{"role":"user","content":"a"}])");
  EXPECT_THAT(refusal(R"("messages":[{"content":[{"type":"image"}],"role":"user"}])"),
              HasSubstr("messages[0].content[0].source is required"));
}

TEST(AnthropicReader, ReadsToolsAndTheChoiceAmongThem) {
  const Reading reading =
      read(R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},)"
           R"("cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g",)"
           R"("input_schema":{},"strict":true}],)"
           R"("tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":true},)" +
           std::string(kHi));

  const api::ChatRequest& request = reading.request;
  EXPECT_EQ(request.chat.tools_json,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}},{"type":"function","function":{"name":"g",)"
            R"("parameters":{},"strict":true}}])");
  EXPECT_THAT(request.chat.tool_names, ElementsAre("f", "g"));
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(request.tool_choice.name, "g");
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_THAT(request.options.ignored_fields, IsEmpty());
  EXPECT_THAT(request.options.nvext.annotations, ElementsAre("keep:300"));
}

TEST(AnthropicReader, KeepsThePromptForTheLongestTimeAsked) {
  const auto wishes = [](const std::string& body) {
    return read(body + "," + std::string(kHi)).request.options.nvext.annotations;
  };
  EXPECT_THAT(wishes(R"("cache_control":null)"), IsEmpty());
  EXPECT_THAT(wishes(R"("cache_control":{"type":"ephemeral"},"system":[{"type":"text",)"
                     R"("text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}])"),
              ElementsAre("keep:3600"));
  EXPECT_THAT(refusal(R"("cache_control":{"type":"ephemeral","ttl":"2d"},)" + std::string(kHi)),
              HasSubstr("cache_control.ttl must be 5m or 1h"));
  EXPECT_THAT(refusal(R"("cache_control":{"type":"for ever"},)" + std::string(kHi)),
              HasSubstr("cache_control.type must be ephemeral"));
}

TEST(AnthropicReader, ReadsWhatElseShapesTheAnswer) {
  const Reading reading =
      read(R"("thinking":{"type":"enabled","budget_tokens":2048},"stop_sequences":["a","b"],)"
           R"("stream":true,"top_k":5,"temperature":0.5,"output_config":{"effort":"low"},)"
           R"("metadata":{"user_id":"user_1_account_2_session_s3"},)" +
           std::string(kHi));

  const api::ChatRequest& request = reading.request;
  EXPECT_EQ(request.chat.thinking_json, R"({"type":"enabled"})");
  EXPECT_EQ(request.options.nvext.max_thinking_tokens, 2048U);
  EXPECT_THAT(request.options.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(request.options.stream);
  EXPECT_EQ(request.options.max_tokens, 9U);
  EXPECT_EQ(request.chat.reasoning_effort, "low");
  EXPECT_EQ(reading.session, "s3");
}

TEST(AnthropicReader, RefusesByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"("messages":[])", "messages must not be empty"},
      {R"("system":"x")", "messages is required"},
      {R"("messages":[{"role":"robot","content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages[0].content is required"},
      {R"("messages":[{"role":"user","content":""}])", "messages[0].content must not be empty"},
      {R"("messages":[{"role":"user","content":[]}])", "messages[0].content must not be empty"},
      {R"("messages":[{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":[{"type":"video"}]}])", "is \"video\""},
      {R"("messages":[{"role":"user","content":[{"type":"tool_result"}]}])", "tool_use_id"},
      {R"("messages":[{"role":"user","content":[{"type":"thinking","thinking":"x"}]}])",
       "only allowed in assistant"},
      {R"("messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",)"
       R"("content":[{"type":"image"}]}]}])",
       "messages[0].content[0].content[0].source is required"},
      {R"("messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64",)"
       R"("media_type":"image/tiff","data":"AAAA"}}]}])",
       "messages[0].content[0].source.media_type must be one of"},
      {R"("messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64",)"
       R"("media_type":"image/png"}}]}])",
       "messages[0].content[0].source.data is required"},
      {R"("messages":[{"role":"user","content":[{"type":"image","source":{"type":"file"}}]}])",
       "messages[0].content[0].source.type must be one of base64, url"},
      {R"("messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64",)"
       R"("media_type":"application/pdf","data":"AAAA"}}]}])",
       "messages[0].content[0] is a document that is no plain text"},
      {R"("messages":[{"role":"assistant","content":[{"type":"image"}]}])",
       "image is only allowed in user messages"},
      {R"("tools":[{"name":"f"}],"messages":[{"role":"user","content":"x"}])", "input_schema"},
      {R"("messages":[{"role":"user","content":[{"type":"web_search_tool_result"}]}])",
       "content block type \"web_search_tool_result\" is not supported"},
      {R"("messages":[{"role":"user","content":[{"type":"nonsense"}]}])", "is not supported"},
      {R"("tools":[{"type":"x","name":"f"}],"messages":[{"role":"user","content":"x"}])",
       "\"custom\""},
      {R"("tools":[{"type":"bash_20250124","name":"bash"}],"messages":[])", "bash_20250124"},
      {R"("tool_choice":{"type":"any"},"messages":[{"role":"user","content":"x"}])",
       "tool_choice any needs non-empty tools"},
      {R"("thinking":{"type":"enabled"},"messages":[{"role":"user","content":"x"}])",
       "thinking.budget_tokens is required"},
      {R"("mcp_servers":[{}],"messages":[{"role":"user","content":"x"}])", "mcp_servers"},
  };
  for (const auto& [members, text] : cases) {
    EXPECT_THAT(refusal(members), HasSubstr(text)) << members;
  }
}

TEST(AnthropicReader, NeedsMaxTokensUnlessItOnlyCounts) {
  std::string body = R"({"model":"m","messages":[{"role":"user","content":"x"}]})";
  std::string same = body;

  EXPECT_THAT(read_messages(body, {}).error().message(), HasSubstr("max_tokens is required"));
  std::string zero = R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]})";
  EXPECT_THAT(read_messages(zero, {}).error().message(), HasSubstr("max_tokens must be from 1"));
  EXPECT_TRUE(read_messages(same, {.limits = {}, .only_counts = true}).has_value());
}

}  // namespace
}  // namespace stator::protocols::anthropic
