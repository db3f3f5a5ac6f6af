// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/media_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "stator/frontend/test/frontend_fixture.h"
#include "stator/json/value.h"
#include "stator/text/base64.h"

namespace stator::frontend {
namespace {

using namespace std::string_literals;
using inference::MediaKind;
using ::testing::HasSubstr;

std::string image_url(char shade, char width = 2) {
  std::string url = "data:image/gif;base64,";
  text::append_base64(url, "GIF89a"s + width + "\0\x02\0"s + shade);
  return url;
}

/// The demo model, as if its end of text stood for an image of three tokens.
class MediaPromptTest : public PrepareFixture {
 protected:
  static constexpr TokenId kPlaceholder = 3069;

  void SetUp() override {
    use("{% for m in messages %}{% for p in m.content %}"
        "{% if p.type == 'image' %}[I]{% else %}{{ p.text }}{% endif %}"
        "{% endfor %}{% endfor %}");
  }
  void use(std::string source, bool known = true) {
    auto assets = std::make_shared<ModelAssets>();
    assets->tokenizer = std::move(*tokenizer::Tokenizer::load(demo_model_dir()));
    assets->chat_template = std::move(*chat_template::ChatTemplate::compile(std::move(source), {}));
    if (known) {
      assets->media_rules = media::PromptRules::read(
          *json::parse(R"({"model_type":"llava","image_token_index":)" +
                       std::to_string(placeholder_) +
                       R"(,"vision_config":{"model_type":"siglip_vision_model","image_size":2,)"
                       R"("patch_size":1}})"),
          json::Value::object());
      EXPECT_EQ(assets->media_rules.image_tokens({1, 1}), 3U);
    }
    model_ = demo_model();
    model_->assets = std::move(assets);
    model_->media.add(MediaKind::kImage);
    model_->block_size = 4;
  }
  static api::ChatInput chat_of(const std::string& parts) {
    std::string body = R"({"model":"demo","messages":[{"role":"user","content":[)" + parts + "]}]}";
    auto request = api::parse_chat_request(body, {});
    EXPECT_TRUE(request.has_value()) << request.error().message();
    return request->chat;
  }
  static std::string image_part(char shade) {
    return R"({"type":"image_url","image_url":{"url":")" + image_url(shade) + "\"}}";
  }
  api::ApiResult<MediaPrompt> prompt_of(api::ChatInput chat) {
    STATOR_TRY(MediaBatch batch, read_inline_media(chat, {}, nullptr));
    EXPECT_TRUE(batch.wanted.empty());
    return make_media_prompt(chat, std::move(batch.blobs),
                             {.encoder = encoder_, .model = *model_, .options = {}, .now = {}});
  }
  TokenId placeholder_ = kPlaceholder;
};

TEST(MediaBlocks, TouchingBlocksHaveTheHashesOfTheirMedia) {
  auto one = std::make_shared<inference::MediaBlob>();
  one->digest = std::string(16, '1') + std::string(48, '0');
  auto two = std::make_shared<inference::MediaBlob>();
  two->digest = std::string(16, '2') + std::string(48, '0');
  std::vector<TokenId> tokens(16);
  const std::vector<inference::MediaItem> items = {
      {.blob = two, .detail = {}, .token_begin = 6, .token_count = 3},
      {.blob = one, .detail = {}, .token_begin = 9, .token_count = 0}};
  const uint64_t seed = blocks::hash_seed("", "");

  const auto hashes = hash_media_blocks(tokens, items, 4, seed);

  const std::span<const TokenId> block(tokens.data(), 4);
  const std::vector<std::vector<uint64_t>> media = {
      {}, {0x2222222222222222}, {0x1111111111111111, 0x2222222222222222}, {}};
  ASSERT_EQ(hashes.size(), 4U);
  blocks::SequenceHash expected = blocks::chain(blocks::hash_block(block, seed, media[0]));
  for (size_t i = 0; i < 4; ++i) {
    expected =
        i == 0 ? expected : blocks::chain(expected, blocks::hash_block(block, seed, media[i]));
    EXPECT_EQ(hashes[i], expected) << i;
  }
}

TEST(MediaBlocks, WithoutMediaTheyAreTheUsualOnes) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<blocks::SequenceHash> usual;
  blocks::extend_sequences(tokens, 4, 7, usual);
  EXPECT_EQ(hash_media_blocks(tokens, {}, 4, 7), usual);
}

TEST_F(MediaPromptTest, PromptsThatDifferInThePictureOnlyShareTheirTextsBlocks) {
  const auto text = R"({"type":"text","text":"one two three four five six seven eight nine"},)"s;
  use("{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}" +
      demo_assets()->tokenizer->token_text(kPlaceholder) +
      "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}");
  const auto one = prompt_of(chat_of(text + image_part('a')));
  const auto same = prompt_of(chat_of(text + image_part('a')));
  const auto other = prompt_of(chat_of(text + image_part('b')));
  ASSERT_TRUE(one.has_value()) << one.error().message();
  EXPECT_EQ(one->ids.ids, other->ids.ids);
  EXPECT_EQ(one->ids.sequences, same->ids.sequences);
  EXPECT_NE(one->ids.sequences, other->ids.sequences);
  const inference::MediaItem& item = one->media->items.front();
  ASSERT_EQ(item.token_count, 3U);
  EXPECT_EQ(std::count(one->ids.ids.begin(), one->ids.ids.end(), kPlaceholder), 3);
  EXPECT_EQ(one->ids.ids[item.token_begin], kPlaceholder);
  for (size_t block = 0; block < one->ids.sequences.size(); ++block) {
    const bool before = (block + 1) * model_->block_size <= item.token_begin;
    EXPECT_EQ(one->ids.sequences[block] == other->ids.sequences[block], before) << block;
  }
}

TEST_F(MediaPromptTest, APictureThatIsNowhereToBeFoundBelongsToTheFirstBlock) {
  const auto text = R"({"type":"text","text":"one two three four five six seven eight nine"},)"s;
  const auto one = prompt_of(chat_of(text + image_part('a')));
  const auto other = prompt_of(chat_of(text + image_part('b')));
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->media->items.front().token_count, 0U);
  EXPECT_NE(one->ids.sequences.front(), other->ids.sequences.front());
}

TEST_F(MediaPromptTest, TemplatesOfTextsGetThePlaceholderOnALineOfItsOwn) {
  use("{% for m in messages %}{{ m.content | trim }}|{% endfor %}");
  const auto prompt = prompt_of(chat_of(R"({"type":"text","text":"a"},)" + image_part('a') +
                                        R"(,{"type":"text","text":"b"})"));
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message();
  EXPECT_EQ(prompt->text, demo_assets()->tokenizer->token_text(kPlaceholder) + "\na\nb|");
}

TEST_F(MediaPromptTest, EnginesAreToldTheConversationAndWhereTheMediaStand) {
  model_->media_in_text = true;
  const auto prompt = prompt_of(chat_of(R"({"type":"text","text":"a"},)" + image_part('a') +
                                        R"(,{"type":"text","text":"b"},)" + image_part('b')));
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->media->pieces, (std::vector<std::string>{"a", "b", ""}));
  const auto chat = json::parse(prompt->media->chat_json);
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(json::to_text(chat->at("messages")),
            R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},)"
            R"({"type":"text","text":"b"},{"type":"image"}]}])");
  EXPECT_EQ(chat->at("add_generation_prompt").as_bool(), true);
}

TEST_F(MediaPromptTest, WhatTheModelCannotTakeIsNamed) {
  const auto refusal = [&](const std::string& parts, const media::MediaConfig& config = {}) {
    const auto checked = check_media(chat_of(parts), *model_, config);
    return checked.has_value() ? "" : checked.error().message();
  };
  const auto audio = R"({"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}})"s;
  EXPECT_EQ(refusal(image_part('a')), "");
  EXPECT_THAT(refusal(audio), HasSubstr("messages[0].content[0] is audio, but model 'demo' takes "
                                        "text and image only"));
  EXPECT_THAT(refusal(audio), HasSubstr("--media audio"));
  model_->media = {};
  EXPECT_THAT(refusal(image_part('a')), HasSubstr("takes text only"));
  model_->media.add(MediaKind::kImage);
  EXPECT_THAT(refusal(image_part('a') + "," + image_part('b'), {.items_max = 1}),
              HasSubstr("media.items_max"));
}

TEST_F(MediaPromptTest, TooMuchTogetherIsTooLarge) {
  api::ChatInput chat = chat_of(image_part('a') + "," + image_part('b'));
  const auto batch = read_inline_media(chat, {}, nullptr);
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(check_total(chat, *batch, {.request_bytes_max = 22}).has_value());
  const auto refused = check_total(chat, *batch, {.request_bytes_max = 21});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kTooLarge);
  EXPECT_EQ(refused.error().param, "messages[0].content[1]");
}

}  // namespace
}  // namespace stator::frontend
