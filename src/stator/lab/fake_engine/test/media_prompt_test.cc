// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/media_prompt.h"

#include <gtest/gtest.h>

#include <string>

#include "stator/json/value.h"
#include "stator/text/base64.h"

namespace stator::fake_engine {
namespace {

using namespace std::string_literals;

constexpr TokenId kPlaceholder = 300;

std::string image_url(char shade) {
  std::string url = "data:image/gif;base64,";
  text::append_base64(url, "GIF89a\x02\0\x02\0"s + shade);
  return url;
}

/// Every image is one token.
FakeModel model_of() {
  FakeModel model;
  model.media.add(inference::MediaKind::kImage);
  model.media_rules = media::PromptRules::read(
      *json::parse(R"({"model_type":"llava","image_token_index":300,"vision_config":)"
                   R"({"model_type":"clip_vision_model","image_size":3,"patch_size":2}})"),
      json::Value::object());
  EXPECT_EQ(model.media_rules.image_tokens({1, 1}), 1U);
  return model;
}

FakeMedium image(char shade) {
  return *read_medium(inference::MediaKind::kImage, image_url(shade));
}

TEST(MediaPrompt, PartsBecomePlacesAndMedia) {
  json::Value messages =
      *json::parse(R"([{"role":"user","content":[{"type":"text","text":"a"},)"
                   R"({"type":"image_url","image_url":{"url":")" +
                   image_url('x') + R"("},"uuid":"name"}]},{"role":"user","content":"b"}])");
  const auto media = take_media(messages, model_of());
  ASSERT_TRUE(media) << media.error();
  ASSERT_EQ(media->size(), 1U);
  EXPECT_EQ(media->front().digest, "name");
  EXPECT_FALSE(json::to_text(messages).contains("base64"));
}

TEST(MediaPrompt, RefusesWhatTheModelHasNotAndWhatItWouldHaveToFetch) {
  const auto refusal = [](const std::string& part) {
    json::Value messages = *json::parse(R"([{"role":"user","content":[)" + part + "]}]");
    const auto media = take_media(messages, model_of());
    return media ? ""s : media.error();
  };
  EXPECT_EQ(refusal(R"({"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,aaaa"}})"),
            "At most 0 audio(s) may be provided in one prompt.");
  EXPECT_TRUE(
      refusal(R"({"type":"image_url","image_url":{"url":"http://x/"}})").contains("fetches"));
  EXPECT_TRUE(refusal(R"({"type":"image_url","image_url":{"url":"data:x"}})").contains("base64"));
  EXPECT_TRUE(refusal(R"({"type":"image_url"})").contains("base64"));
}

TEST(MediaPrompt, TheSameBytesAreTheSameTokens) {
  const FakeModel model = model_of();
  const auto placed = [&](char shade) {
    std::vector<TokenId> ids = {1, kPlaceholder, 2};
    EXPECT_TRUE(place_media(model, {image(shade)}, ids, nullptr));
    return ids;
  };
  EXPECT_EQ(placed('x'), placed('x'));
  EXPECT_NE(placed('x'), placed('y'));
  EXPECT_EQ(placed('x').size(), 3U);
  EXPECT_EQ(placed('x').front(), 1U);
}

TEST(MediaPrompt, EventsTellPlaceholdersAndDigests) {
  const FakeModel model = model_of();
  std::vector<TokenId> ids = {1, 2, 3, kPlaceholder, 4, 5};
  BlockOwner owner;
  const FakeMedium medium = image('x');
  ASSERT_TRUE(place_media(model, {medium}, ids, &owner));
  PublishedBlocks book(2, 16);
  SequenceTrace trace(2, owner);
  book.append(trace, ids);
  const auto told = book.describe(trace, 3);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->tokens, (std::vector<TokenId>{1, 2, 3, kPlaceholder, 4, 5}));
  EXPECT_EQ(told->extra_keys, (std::vector<std::vector<std::string>>{{}, {medium.digest}, {}}));
}

TEST(MediaPrompt, EveryMediumNeedsAPlaceholder) {
  const FakeModel model = model_of();
  std::vector<TokenId> ids = {1, 2};
  EXPECT_FALSE(place_media(model, {image('x')}, ids, nullptr));
  FakeModel bare;
  ASSERT_TRUE(place_media(bare, {image('x')}, ids, nullptr));
  EXPECT_EQ(ids.size(), 6U);
}

}  // namespace
}  // namespace stator::fake_engine
