// SPDX-License-Identifier: Apache-2.0
#include "stator/media/prompt_rules.h"

#include <gtest/gtest.h>

namespace stator::media {
namespace {

PromptRules rules_of(std::string_view config, std::string_view processor = "{}") {
  return PromptRules::read(*json::parse(std::string(config)), *json::parse(std::string(processor)));
}

constexpr std::string_view kQwen =
    R"({"model_type":"qwen2_vl","image_token_id":7,"video_token_id":8,"vision_start_token_id":5,)"
    R"("vision_end_token_id":6,"vision_config":{"patch_size":14,"spatial_merge_size":2}})";

TEST(PromptRules, QwenCountsAsItsProcessorDoes) {
  // From transformers' Qwen2VLImageProcessor with these bounds: grid_thw.prod() / merge².
  const PromptRules rules = rules_of(
      kQwen, R"({"patch_size":14,"merge_size":2,"min_pixels":3136,"max_pixels":12845056})");
  EXPECT_EQ(rules.placeholder(inference::MediaKind::kImage), 7U);
  EXPECT_EQ(rules.placeholder(inference::MediaKind::kVideo), 8U);
  EXPECT_EQ(rules.placeholder(inference::MediaKind::kAudio), std::nullopt);
  EXPECT_EQ(rules.image_begin(), 5U);
  EXPECT_EQ(rules.image_tokens({224, 224}), 64U);
  EXPECT_EQ(rules.image_tokens({640, 480}), 23U * 17U);
  EXPECT_EQ(rules.image_tokens({28, 28}), 4U);  // grows to min_pixels
  EXPECT_EQ(rules.image_tokens({1, 1}), 4U);
  EXPECT_EQ(rules.image_tokens({42, 42}), 4U);               // halves go to the even multiple
  EXPECT_EQ(rules.image_tokens({8000, 6000}), 147U * 110U);  // shrinks to max_pixels
  EXPECT_EQ(rules.image_tokens({4000, 10}), std::nullopt);
}

TEST(PromptRules, QwenThreeTellsItsBoundsAsEdges) {
  const PromptRules rules = rules_of(
      R"({"model_type":"qwen3_vl","image_token_id":7,"vision_config":{"patch_size":16}})",
      R"({"patch_size":16,"merge_size":2,"size":{"shortest_edge":65536,"longest_edge":16777216}})");
  EXPECT_EQ(rules.image_tokens({512, 512}), 256U);
  EXPECT_EQ(rules.image_tokens({32, 32}), 64U);
}

TEST(PromptRules, LlavaHasOneSize) {
  EXPECT_EQ(rules_of(R"({"model_type":"llava","image_token_index":32000,"vision_config":)"
                     R"({"model_type":"clip_vision_model","image_size":336,"patch_size":14}})")
                .image_tokens({10, 20}),
            576U);
  EXPECT_EQ(rules_of(R"({"model_type":"llava","image_token_index":1,)"
                     R"("vision_feature_select_strategy":"full","vision_config":)"
                     R"({"model_type":"siglip_vision_model","image_size":30,"patch_size":15}})")
                .image_tokens({10, 20}),
            4U);
}

TEST(PromptRules, KindsAreThePartsOfTheModel) {
  EXPECT_EQ(rules_of(kQwen).kinds().text(), "image,video");
  EXPECT_EQ(rules_of(R"({"model_type":"llava","vision_config":{}})").kinds().text(), "image");
  EXPECT_EQ(rules_of(R"({"model_type":"qwen2_audio","audio_config":{}})").kinds().text(), "audio");
  EXPECT_EQ(rules_of(R"({"model_type":"llama"})").kinds().text(), "");
  EXPECT_EQ(rules_of("{}").image_tokens({1, 1}), std::nullopt);
}

TEST(PromptRules, NonsenseInAFolderIsUnknown) {
  EXPECT_EQ(rules_of(R"({"model_type":"llava","image_token_index":-1,"vision_config":)"
                     R"({"image_size":"x","patch_size":0}})")
                .image_tokens({1, 1}),
            std::nullopt);
  EXPECT_EQ(rules_of(R"({"model_type":"qwen2_vl","vision_config":{"patch_size":5000}})")
                .image_tokens({1, 1}),
            std::nullopt);
}

}  // namespace
}  // namespace stator::media
