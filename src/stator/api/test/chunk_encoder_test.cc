// SPDX-License-Identifier: Apache-2.0
#include "stator/api/chunk_encoder.h"

#include <gtest/gtest.h>
#include <limits>

#include "stator/core/random.h"
#include "stator/json/value.h"

namespace stator::api {
namespace {

constexpr ResponseIdentity kIdentity{.id = "chatcmpl-1", .model = "demo \"x\"", .created_s = 17};

// The JSON of the only frame in `out`, read by another parser.
json::Value frame(std::string_view out) {
  EXPECT_TRUE(out.starts_with("data: ")) << out;
  EXPECT_TRUE(out.ends_with("\n\n")) << out;
  const std::string_view json = out.substr(6, out.size() - 8);
  EXPECT_EQ(json.find('\n'), std::string_view::npos) << out;
  return *json::parse(json);
}

json::Value chat_chunk(const ChatDelta& delta, const ResponseOptions& options = {}) {
  std::string out;
  ChatChunkEncoder(kIdentity, options).append_delta(out, delta);
  return frame(out);
}

json::Value text_chunk(const CompletionDelta& delta, const ResponseOptions& options = {}) {
  std::string out;
  CompletionChunkEncoder({.id = "cmpl-1", .model = "m", .created_s = 17}, options)
      .append_delta(out, delta);
  return frame(out);
}

json::Value golden(std::string_view json) {
  return *json::parse(json);
}

TEST(ChatChunk, HasTheExactBytesOfTheFirstChunk) {
  std::string out;
  ChatChunkEncoder(kIdentity, {}).append_delta(out, {.first = true, .content = "Hi"});
  EXPECT_EQ(out,
            "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":17,"
            "\"model\":\"demo \\\"x\\\"\",\"system_fingerprint\":null,\"service_tier\":null,"
            "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hi\"},"
            "\"finish_reason\":null,\"logprobs\":null}]}\n\n");
}

TEST(ChatChunk, CarriesTheRoleOnlyOnce) {
  EXPECT_EQ(chat_chunk({.first = true}).at("choices").at(0).at("delta"),
            golden(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(chat_chunk({.index = 3, .content = "x"}).at("choices").at(0),
            golden(R"({"index":3,"delta":{"content":"x"},"finish_reason":null,"logprobs":null})"));
}

TEST(ChatChunk, NamesTheFinishReason) {
  EXPECT_EQ(chat_chunk({.finish = ChoiceFinish::kLength}).at("choices").at(0),
            golden(R"({"index":0,"delta":{},"finish_reason":"length","logprobs":null})"));
}

TEST(ChatChunk, CarriesReasoningUnderTheConfiguredName) {
  EXPECT_EQ(chat_chunk({.first = true, .reasoning = "hm"}).at("choices").at(0).at("delta"),
            golden(R"({"role":"assistant","reasoning_content":"hm"})"));
  EXPECT_EQ(chat_chunk({.reasoning = "hm"}, {.reasoning_field = "reasoning"})
                .at("choices")
                .at(0)
                .at("delta"),
            golden(R"({"reasoning":"hm"})"));
  EXPECT_EQ(chat_chunk({.refusal = "no"}).at("choices").at(0).at("delta"),
            golden(R"({"refusal":"no"})"));
}

TEST(ChatChunk, OpensAToolCallOnceAndThenStreamsArguments) {
  const ToolCallDelta opening[] = {{.index = 0, .id = "call_1", .name = "f"}};
  const ToolCallDelta following[] = {{.index = 0, .arguments = "{\"a\""}};
  EXPECT_EQ(chat_chunk({.tool_calls = opening}).at("choices").at(0).at("delta"),
            golden(R"({"tool_calls":[{"index":0,"id":"call_1","type":"function",
                       "function":{"name":"f","arguments":""}}]})"));
  EXPECT_EQ(chat_chunk({.tool_calls = following}).at("choices").at(0).at("delta"),
            golden(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]})"));
}

TEST(ChatChunk, ListsLogprobsPerToken) {
  const TokenChoice top[] = {{.id = 5, .logprob = -0.5F, .bytes = "a"},
                             {.id = 6, .logprob = -1.5F, .bytes = "\xE6"}};
  const LogprobEntry entries[] = {{.sampled = top[0], .top = top},
                                  {.sampled = {.id = 9, .logprob = -9999, .bytes = ""}}};
  EXPECT_EQ(chat_chunk({.content = "a", .logprobs = entries}).at("choices").at(0).at("logprobs"),
            golden(R"({"content":[
              {"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[
                {"token":"a","logprob":-0.5,"bytes":[97]},
                {"token":"\ufffd","logprob":-1.5,"bytes":[230]}],"token_id":5},
              {"token":"","logprob":-9999,"bytes":[],"top_logprobs":[],"token_id":9}],
              "refusal":null})"));
  const auto ids = chat_chunk({.logprobs = entries}, {.tokens_as_token_ids = true});
  EXPECT_EQ(ids.at("choices").at(0).at("logprobs").at("content").at(0).at("token"), "token_id:5");
}

TEST(ChatChunk, ShowsUsageAsAsked) {
  const Usage usage{.prompt_tokens = 10, .completion_tokens = 3, .cached_tokens = 8};
  constexpr std::string_view kUsage = R"({"prompt_tokens":10,"completion_tokens":3,
      "total_tokens":13,"prompt_tokens_details":{"cached_tokens":8},
      "completion_tokens_details":{"reasoning_tokens":0}})";
  EXPECT_FALSE(chat_chunk({.content = "a", .usage = &usage}).find("usage"));
  EXPECT_TRUE(
      chat_chunk({.content = "a", .usage = &usage}, {.include_usage = true}).at("usage").is_null());
  EXPECT_EQ(chat_chunk({.content = "a", .usage = &usage},
                       {.include_usage = true, .continuous_usage_stats = true})
                .at("usage"),
            golden(kUsage));

  std::string out;
  ChatChunkEncoder(kIdentity, {.include_usage = true}).append_usage(out, usage, R"({"x":1})");
  const auto last = frame(out);
  EXPECT_EQ(last.at("choices"), golden("[]"));
  EXPECT_EQ(last.at("usage"), golden(kUsage));
  EXPECT_EQ(last.at("nvext"), golden(R"({"x":1})"));
}

TEST(ChatChunk, IsNotSentWhenEmpty) {
  std::string out;
  const ChatChunkEncoder chat(kIdentity, {});
  const CompletionChunkEncoder text(kIdentity, {});
  const Usage usage;
  chat.append_delta(out, {.usage = &usage});
  text.append_delta(out, {.usage = &usage});
  chat.append_delta(out, {.logprobs = std::span<const LogprobEntry>()});
  EXPECT_EQ(out, "");
}

TEST(ChatChunk, CarriesNvext) {
  EXPECT_EQ(chat_chunk({.nvext_json = R"({"a":1})"}).at("nvext"), golden(R"({"a":1})"));
}

TEST(CompletionChunk, HasTheLegacyShape) {
  std::string out;
  CompletionChunkEncoder({.id = "cmpl-1", .model = "m", .created_s = 17}, {.include_usage = true})
      .append_delta(out, {.index = 2, .text = "a\nb", .finish = ChoiceFinish::kStop});
  EXPECT_EQ(
      out,
      "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":17,\"model\":\"m\","
      "\"system_fingerprint\":null,\"choices\":[{\"index\":2,\"text\":\"a\\nb\","
      "\"finish_reason\":\"stop\",\"logprobs\":null}],\"usage\":null}\n\n");
}

TEST(CompletionChunk, MapsTokensToProbabilities) {
  const TokenChoice top[] = {{.id = 1, .logprob = -0.25F, .bytes = "x"},
                             {.id = 2, .logprob = -1.0F, .bytes = "a"},
                             {.id = 3, .logprob = -2.0F, .bytes = "x"}};
  const LogprobEntry entries[] = {{.sampled = top[1], .top = top, .text_offset = 4}};
  EXPECT_EQ(text_chunk({.text = "a", .logprobs = entries}).at("choices").at(0).at("logprobs"),
            golden(R"({"tokens":["a"],"token_logprobs":[-1],"top_logprobs":[{"a":-1,"x":-0.25}],
                       "text_offset":[4]})"));
  EXPECT_EQ(text_chunk({.text = "a", .logprobs = entries}, {.tokens_as_token_ids = true})
                .at("choices")
                .at(0)
                .at("logprobs")
                .at("top_logprobs"),
            golden(R"([{"token_id:2":-1,"token_id:1":-0.25,"token_id:3":-2}])"));
}

TEST(CompletionChunk, KnowsNothingOfATokenWithoutAProbability) {
  const LogprobEntry entries[] = {
      {.sampled = {.id = 1, .logprob = std::numeric_limits<float>::quiet_NaN(), .bytes = "x"}}};
  EXPECT_EQ(text_chunk({.text = "x", .logprobs = entries}).at("choices").at(0).at("logprobs"),
            golden(R"({"tokens":["x"],"token_logprobs":[null],"top_logprobs":[null],
                       "text_offset":[0]})"));
}

TEST(Sse, WritesTheOtherFrames) {
  std::string out;
  append_sse_error(out, 503, "busy\n");
  append_sse_done(out);
  append_sse_keep_alive(out);
  append_sse_annotation(out, "request_id", "\"r\"");
  EXPECT_EQ(out,
            "data: {\"error\":{\"message\":\"busy\\n\",\"type\":\"service_unavailable\","
            "\"code\":503}}\n\ndata: [DONE]\n\n:\n\nevent: request_id\ndata: \"r\"\n\n");
}

TEST(ChatChunk, GivesTheTextBackWhateverItIs) {
  Random random(23);
  const ChatChunkEncoder encoder(kIdentity, {});
  std::string out;
  for (int round = 0; round < 2000; ++round) {
    std::string text(1 + random.below(40), '\0');
    for (char& byte : text) {
      byte = static_cast<char>(random.below(128));
    }

    out.clear();
    encoder.append_delta(out, {.content = text});

    EXPECT_EQ(frame(out).at("choices").at(0).at("delta").at("content").text(), text);
  }
}

TEST(ChoiceFinish, FollowsTheEngine) {
  using enum ChoiceFinish;
  EXPECT_EQ(to_choice_finish(inference::FinishReason::kStop, ToolCallsSeen::kNo), kStop);
  EXPECT_EQ(to_choice_finish(inference::FinishReason::kStop, ToolCallsSeen::kYes), kToolCalls);
  EXPECT_EQ(to_choice_finish(inference::FinishReason::kLength, ToolCallsSeen::kYes), kLength);
  EXPECT_EQ(to_choice_finish(inference::FinishReason::kCancelled, ToolCallsSeen::kNo), kStop);
  EXPECT_EQ(to_choice_finish(inference::FinishReason::kNone, ToolCallsSeen::kNo), kNone);
  EXPECT_EQ(to_choice_finish(inference::FinishReason::kError, ToolCallsSeen::kYes), kNone);
  EXPECT_EQ(finish_reason_name(kToolCalls), "tool_calls");
  EXPECT_EQ(finish_reason_name(kContentFilter), "content_filter");
  EXPECT_EQ(finish_reason_name(kNone), "");
}

}  // namespace
}  // namespace stator::api
