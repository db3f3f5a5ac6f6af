// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/media.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/lower.h"
#include "stator/json/value.h"

namespace stator::engine::adapters {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const inference::MediaBlob> blob(inference::MediaKind kind, std::string type,
                                                 std::string bytes) {
  auto made = std::make_shared<inference::MediaBlob>();
  made->kind = kind;
  made->type = std::move(type);
  made->bytes = std::move(bytes);
  made->digest = std::string(64, 'd');
  return made;
}

/// "look" + three placeholders + "at" + one for audio, as a frontend sends it.
inference::EngineRequest request_of() {
  inference::EngineRequest request;
  request.tokens = {10, 7, 7, 7, 11, 8, 12};
  request.stop.max_tokens = 5;
  auto media = std::make_shared<inference::MediaInput>();
  media->chat_json =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image"},)"
      R"({"type":"audio"}]}],"chat_template_kwargs":{"a":1},"add_generation_prompt":true})";
  media->pieces = {"<u>look ", " and ", "</u>"};
  media->items = {{.blob = blob(inference::MediaKind::kImage, "image/png", "abc"),
                   .detail = "low",
                   .token_begin = 1,
                   .token_count = 3},
                  {.blob = blob(inference::MediaKind::kAudio, "audio/x-wav", "def"),
                   .token_begin = 5,
                   .token_count = 0}};
  request.media = media;
  return request;
}

json::Value body_of(const Dialect& dialect, const inference::EngineRequest& request,
                    const EngineFacts& facts, std::string_view path) {
  const auto call = dialect.lower(request, facts);
  EXPECT_TRUE(call) << call.error().message();
  if (!call) {
    return {};
  }
  EXPECT_EQ(call->path, path);
  auto body = json::parse(call->body);
  EXPECT_TRUE(body) << call->body;
  return body ? std::move(*body) : json::Value();
}

TEST(Media, VllmIsAskedByItsChatRouteWithTheBytesAndTheDigest) {
  const auto dialect = make_vllm_dialect({});
  const json::Value body =
      body_of(*dialect, request_of(), {.model = "m", .max_model_len = 100}, "/v1/chat/completions");
  EXPECT_EQ(
      json::to_text(body.at("messages")),
      R"([{"role":"user","content":[{"type":"text","text":"look"},)"
      R"({"type":"image_url","image_url":{"url":"data:image/png;base64,YWJj","detail":"low"},)"
      R"("uuid":")" +
          std::string(64, 'd') +
          R"("},{"type":"audio_url","audio_url":{"url":"data:audio/x-wav;base64,ZGVm"},)"
          R"("uuid":")" +
          std::string(64, 'd') + R"("}]}])");
  EXPECT_EQ(json::to_text(body.at("chat_template_kwargs")), R"({"a":1})");
  EXPECT_EQ(body.at("return_token_ids").as_bool(), true);
  EXPECT_EQ(body.at("max_tokens").as_uint64(), 5U);
  EXPECT_EQ(body.find("prompt"), nullptr);
  EXPECT_EQ(body.find("tool_choice"), nullptr);
}

TEST(Media, AnAnswerUpToTheContextIsMeasuredByTheEngine) {
  const auto dialect = make_vllm_dialect({});
  inference::EngineRequest request = request_of();
  request.stop.max_tokens = 93;
  const json::Value body =
      body_of(*dialect, request, {.model = "m", .max_model_len = 100}, "/v1/chat/completions");
  EXPECT_EQ(body.find("max_tokens"), nullptr);
}

TEST(Media, LogprobsOfAVllmChatAreAskedForInItsWords) {
  const auto dialect = make_vllm_dialect({});
  inference::EngineRequest request = request_of();
  request.sampling.logprobs = 3;
  const json::Value body = body_of(*dialect, request, {.model = "m"}, "/v1/chat/completions");
  EXPECT_EQ(body.at("logprobs").as_bool(), true);
  EXPECT_EQ(body.at("top_logprobs").as_uint64(), 3U);
}

TEST(Media, SglangGetsUnexpandedIdsAndListsByKind) {
  const auto dialect = make_sglang_dialect({});
  const json::Value body = body_of(*dialect, request_of(), {.model = "m"}, "/generate");
  EXPECT_EQ(json::to_text(body.at("input_ids")), "[10,7,11,8,12]");
  EXPECT_EQ(json::to_text(body.at("image_data")), R"(["data:image/png;base64,YWJj"])");
  EXPECT_EQ(json::to_text(body.at("audio_data")), R"(["data:audio/x-wav;base64,ZGVm"])");
  EXPECT_EQ(body.find("video_data"), nullptr);
}

TEST(Media, LlamaCppGetsMarkedTextWithItsOwnMarker) {
  const auto dialect = make_llamacpp_dialect({});
  EngineFacts facts{.model = "m", .max_model_len = 100, .media_marker = "<M>"};
  const json::Value body = body_of(*dialect, request_of(), facts, "/completion");
  EXPECT_EQ(body.at("prompt").at("prompt_string").text(), "<u>look <M> and <M></u>");
  EXPECT_EQ(json::to_text(body.at("prompt").at("multimodal_data")), R"(["YWJj","ZGVm"])");
  facts.media_marker = "look";
  EXPECT_FALSE(dialect->lower(request_of(), facts));
}

TEST(Media, LlamaCppAndSglangSayWhatTheyTake) {
  EngineFacts facts;
  ASSERT_TRUE(make_llamacpp_dialect({})->learn(
      "/props", R"({"modalities":{"vision":true,"audio":false},"media_marker":"<__media_1__>"})",
      facts));
  ASSERT_TRUE(facts.media);
  EXPECT_EQ(facts.media->text(), "image");
  EXPECT_EQ(facts.media_marker, "<__media_1__>");
  EngineFacts other;
  ASSERT_TRUE(make_sglang_dialect({})->learn(
      "/get_model_info", R"({"has_image_understanding":true,"has_audio_understanding":true})",
      other));
  EXPECT_EQ(other.media->text(), "image,audio");
  EngineFacts silent;
  ASSERT_TRUE(make_sglang_dialect({})->learn("/get_model_info", R"({"model_path":"m"})", silent));
  EXPECT_FALSE(silent.media);
}

TEST(Media, OpenAiHasItsOwnWordsForAudioAndNoneForVideoAndTools) {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  const inference::EngineRequest request = request_of();
  ASSERT_TRUE(write_chat(json, *request.media, PartStyle::kOpenAi));
  json.end_object();
  EXPECT_THAT(out,
              HasSubstr(R"({"type":"input_audio","input_audio":{"data":"ZGVm","format":"wav"}})"));
  EXPECT_THAT(out, ::testing::Not(HasSubstr("uuid")));
  EXPECT_THAT(out, ::testing::Not(HasSubstr("chat_template_kwargs")));
  inference::MediaInput tools = *request.media;
  tools.chat_json.insert(1, R"("tools":[],)");
  const Status refused = write_chat(json, tools, PartStyle::kOpenAi);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("tools"));
}

TEST(Media, WhatIsNoConversationIsRefused) {
  inference::MediaInput media = *request_of().media;
  std::string out;
  json::Writer json(out);
  for (const char* text : {"", "{}", "[]", R"({"messages":[]})", R"({"messages":)"}) {
    media.chat_json = text;
    EXPECT_FALSE(write_chat(json, media, PartStyle::kVllm)) << text;
  }
}

TEST(Media, CollapsingUndoesTheExpansion) {
  EXPECT_THAT(collapse_media(request_of()), ElementsAre(10, 7, 11, 8, 12));
}

TEST(Media, AnAnswerIsNotTakenUpInTheMiddle) {
  inference::EngineRequest request = request_of();
  request.tokens.push_back(13);
  request.generated = 1;
  const auto dialect = make_vllm_dialect({});
  const Status checked = check_request(request, dialect->traits(), {.model = "m"}, 100);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace stator::engine::adapters
