// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/tokens/tokens.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "stator/protocols/output.h"

namespace stator::protocols::tokens {
namespace {

using Ids = std::vector<TokenId>;

Reading read(const Protocol& protocol, std::string body) {
  auto reading = protocol.read(body, {});
  EXPECT_TRUE(reading.has_value()) << reading.error().message();
  return reading ? std::move(*reading) : Reading();
}

std::string blamed(const Protocol& protocol, std::string body) {
  auto reading = protocol.read(body, {});
  return reading ? "accepted" : reading.error().param;
}

TEST(VllmTokens, SamplingParamsAreReadWhereTheyStand) {
  const Reading reading = read(
      kVllm, R"({"request_id":"r","token_ids":[5,6],"sampling_params":{"max_tokens":3,)"
             R"("temperature":0,"top_k":4,"stop_token_ids":[2],"ignore_eos":true,"logprobs":2},)"
             R"("stream":true})");
  const api::GenerateOptions& options = reading.request.options;
  EXPECT_EQ(options.nvext.token_data, (Ids{5, 6}));
  EXPECT_EQ(options.max_tokens, 3U);
  EXPECT_EQ(options.sampling.top_k, 4);
  EXPECT_EQ(options.sampling.logprobs, 2U);
  EXPECT_EQ(options.stop_token_ids, (Ids{2}));
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_TRUE(options.stream);
  EXPECT_TRUE(options.model.empty());
}

TEST(VllmTokens, WhatIsWrongIsNamed) {
  EXPECT_EQ(blamed(kVllm, R"({})"), "token_ids");
  EXPECT_EQ(blamed(kVllm, R"({"token_ids":[]})"), "token_ids");
  EXPECT_EQ(blamed(kVllm, R"({"token_ids":[1],"sampling_params":{"n":2}})"), "sampling_params.n");
  EXPECT_EQ(blamed(kVllm, R"({"token_ids":[1],"sampling_params":{"temperature":-1}})"),
            "sampling_params.temperature");
  EXPECT_EQ(blamed(kVllm, R"({"token_ids":[1],"features":{}})"), "features");
  EXPECT_EQ(blamed(kVllm, R"({"token_ids":[1],"output_mode":"text"})"), "output_mode");
}

TEST(VllmTokens, AnswersAreTokens) {
  const Reading reading =
      read(kVllm, R"({"request_id":"r","token_ids":[5],"sampling_params":{"logprobs":1}})");
  const AnswerHead head{.id = "generate-tokens-x", .echo = reading.echo};
  const Ids ids = {7, 8};
  const std::array<inference::TokenLogprobs, 2> logprobs = {
      inference::TokenLogprobs{.sampled = {7, -0.5F, 1}, .top = {{7, -0.5F, 1}}},
      inference::TokenLogprobs{.sampled = {8, -1, 2}, .top = {}}};
  const Piece piece{.text = "ab",
                    .finish = api::ChoiceFinish::kLength,
                    .tokens = ids,
                    .token_logprobs = logprobs};
  Output output;
  output.add(piece);
  std::string body;

  kVllm.append_body(body, head, output, {.usage = {.prompt_tokens = 1, .completion_tokens = 2}});

  EXPECT_EQ(
      body,
      R"({"request_id":"generate-tokens-r","choices":[{"index":0,"token_ids":[7,8],"logprobs":)"
      R"({"content":[{"token_id":7,"logprob":-0.5,"rank":1,"top_logprobs":[{"token_id":7,)"
      R"("logprob":-0.5,"rank":1}]},{"token_id":8,"logprob":-1,"rank":2,"top_logprobs":[]}]},)"
      R"("finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,)"
      R"("total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}})");
  std::string stream;
  kVllm.make_stream_writer(head)->add(stream, piece);
  EXPECT_TRUE(stream.starts_with(R"(data: {"request_id":"generate-tokens-r","choices":[)"))
      << stream;
}

TEST(SglangTokens, ItsNamesAreTranslated) {
  const Reading reading =
      read(kSglang, R"({"input_ids":[5],"sampling_params":{"max_new_tokens":9,"min_new_tokens":1,)"
                    R"("sampling_seed":3},"return_logprob":true,"top_logprobs_num":2,"rid":"r"})");
  EXPECT_EQ(reading.request.options.max_tokens, 9U);
  EXPECT_EQ(reading.request.options.min_tokens, 1U);
  EXPECT_EQ(reading.request.options.sampling.seed, 3);
  EXPECT_EQ(reading.request.options.sampling.logprobs, 2U);
  const Reading text = read(kSglang, R"({"text":"Hi"})");
  EXPECT_TRUE(text.request.options.nvext.use_raw_prompt);
  EXPECT_EQ(text.request.options.max_tokens, 128U);
  EXPECT_EQ(blamed(kSglang, "{}"), "input_ids");
  EXPECT_EQ(blamed(kSglang, R"({"input_ids":[1],"image_data":"x"})"), "image_data");
}

TEST(SglangTokens, StreamsRepeatWhatWasSaid) {
  const Reading reading = read(kSglang, R"({"input_ids":[5],"rid":"r"})");
  const auto writer = kSglang.make_stream_writer({.id = "gen-x", .echo = reading.echo});
  const Ids first = {7};
  const Ids second = {8};
  std::string out;
  writer->begin(out, {.prompt_tokens = 1, .cached_tokens = 0});
  writer->add(out, {.text = "a", .tokens = first});
  out.clear();

  writer->add(out, {.text = "b", .finish = api::ChoiceFinish::kStop, .tokens = second});
  writer->finish(out, {});

  EXPECT_EQ(out, R"(data: {"text":"ab","output_ids":[7,8],"meta_info":{"id":"r","finish_reason":)"
                 R"({"type":"stop","matched":8},"prompt_tokens":1,"completion_tokens":2,)"
                 R"("cached_tokens":0}})"
                 "\n\ndata: [DONE]\n\n");
}

}  // namespace
}  // namespace stator::protocols::tokens
