// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/frame_text.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <memory>
#include <string_view>

namespace stator::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> with_post_processor(std::string_view post) {
  auto made = Tokenizer::from_json(fmt::format(
      R"({{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{{"type":"Whitespace"}},)"
      R"("post_processor":{},"decoder":null,"model":{{"type":"WordLevel","unk_token":"u",)"
      R"("vocab":{{"u":0,"[C]":1,"[S]":2,"a":3,"b":4}}}}}})",
      post));
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(*made);
}

constexpr std::string_view kBert =
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[C]","type_id":0}},)"
    R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"[S]","type_id":0}}],)"
    R"("pair":[{"SpecialToken":{"id":"[C]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},)"
    R"({"SpecialToken":{"id":"[S]","type_id":0}},{"Sequence":{"id":"B","type_id":1}},)"
    R"({"SpecialToken":{"id":"[S]","type_id":1}}],"special_tokens":{)"
    R"("[C]":{"id":"[C]","ids":[1],"tokens":["[C]"]},"[S]":{"id":"[S]","ids":[2],"tokens":["[S]"]}}})";
constexpr std::string_view kRoberta =
    R"({"type":"RobertaProcessing","sep":["[S]",2],"cls":["[C]",1],"trim_offsets":true,"add_prefix_space":false})";

TEST(FrameText, SurroundsATextAndCutsOnlyIt) {
  const auto tokenizer = with_post_processor(kBert);
  EXPECT_EQ(frame_text(*tokenizer, Ids{3, 4, 3}), (Ids{1, 3, 4, 3, 2}));
  EXPECT_EQ(frame_text(*tokenizer, Ids{3, 4, 3}, 4), (Ids{1, 3, 4, 2}));
  EXPECT_EQ(frame_text(*tokenizer, Ids{3}, 1), (Ids{1, 2}));
}

TEST(FrameText, PairsOfBertHaveOneSeparatorBetweenThem) {
  const auto tokenizer = with_post_processor(kBert);
  const FramedPair pair = frame_pair(*tokenizer, Ids{3, 3}, Ids{4});
  EXPECT_EQ(pair.ids, (Ids{1, 3, 3, 2, 4, 2}));
  EXPECT_EQ(pair.first_length, 4U);
}

TEST(FrameText, PairsOfRobertaHaveTwo) {
  const auto tokenizer = with_post_processor(kRoberta);
  EXPECT_EQ(frame_pair(*tokenizer, Ids{3}, Ids{4}).ids, (Ids{1, 3, 2, 2, 4, 2}));
}

TEST(FrameText, TheLongerTextOfAPairGivesFirst) {
  const auto tokenizer = with_post_processor(kBert);
  EXPECT_EQ(frame_pair(*tokenizer, Ids{3}, Ids{4, 4, 4, 4}, 6).ids, (Ids{1, 3, 2, 4, 4, 2}));
  EXPECT_EQ(frame_pair(*tokenizer, Ids{3, 3, 3, 3}, Ids{4}, 6).ids, (Ids{1, 3, 3, 2, 4, 2}));
  EXPECT_EQ(frame_pair(*tokenizer, Ids{3, 3, 3, 3}, Ids{4, 4, 4, 4}, 6).ids,
            (Ids{1, 3, 3, 2, 4, 2}));
}

TEST(FrameText, WithoutAPostProcessorNothingIsAdded) {
  const auto tokenizer = with_post_processor("null");
  EXPECT_EQ(frame_pair(*tokenizer, Ids{3}, Ids{4}).ids, (Ids{3, 4}));
}

}  // namespace
}  // namespace stator::tokenizer
