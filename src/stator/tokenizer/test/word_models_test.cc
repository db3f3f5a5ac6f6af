// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/byte_trie.h"
#include "stator/tokenizer/charsmap.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/unigram_model.h"
#include "stator/tokenizer/wordlevel_model.h"
#include "stator/tokenizer/wordpiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

namespace stator::tokenizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ByteTrie, FindsEveryKeyAndNothingElse) {
  const ByteTrie trie({{"a", 1}, {"abc", 2}, {"\xFF", 3}, {"", 4}, {"a", 5}});
  const auto value = [&](std::string_view key) {
    uint32_t node = 0;
    for (const char byte : key) {
      node = trie.child(node, static_cast<unsigned char>(byte));
      if (node == ByteTrie::kNoNode) {
        return ByteTrie::kNoValue;
      }
    }
    return trie.value(node);
  };

  EXPECT_EQ(value("a"), 5U);  // the last of equals
  EXPECT_EQ(value("abc"), 2U);
  EXPECT_EQ(value("\xFF"), 3U);
  EXPECT_EQ(value("ab"), ByteTrie::kNoValue);
  EXPECT_EQ(value("b"), ByteTrie::kNoValue);
  EXPECT_EQ(value(""), ByteTrie::kNoValue);
}

std::vector<TokenId> encode(const UnigramModel& model, std::string_view text) {
  UnigramScratch scratch;
  std::vector<TokenId> ids = {77};
  const Status status = model.encode(text, scratch, ids);
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(ids.front(), 77U);
  return {ids.begin() + 1, ids.end()};
}

UnigramSpec unigram() {
  return {.vocab = {{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"é", 4}},
          .scores = {0, -1, -2, -2.5, -1},
          .unk = 0};
}

TEST(UnigramModel, TakesTheBestTotalAndFusesUnknowns) {
  const auto model = UnigramModel::create(unigram());

  EXPECT_THAT(encode(*model, "abb"), ElementsAre(3, 2));
  EXPECT_THAT(encode(*model, "xyab"), ElementsAre(0, 3));
  EXPECT_THAT(encode(*model, "aéx"), ElementsAre(1, 4, 0));
}

TEST(UnigramModel, AnEarlierStartWinsTies) {
  const auto model = UnigramModel::create(
      {.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}}, .scores = {-1, -1, -2}, .unk = std::nullopt});

  EXPECT_THAT(encode(*model, "ab"), ElementsAre(2));
}

TEST(UnigramModel, SentencePieceItselfAddsInSinglePrecision) {
  UnigramSpec spec = {.vocab = {{"<unk>", 0}, {"a", 1}, {"aa", 2}},
                      .scores = {0, static_cast<double>(-4.1F), static_cast<double>(-8.2F)},
                      .unk = 0};
  const auto of_reference = UnigramModel::create(spec);
  spec.is_sentencepiece = true;
  const auto of_sentencepiece = UnigramModel::create(spec);

  // Rounding decides between four ways of equal score.
  EXPECT_THAT(encode(*of_reference, "aaaaaaa"), ElementsAre(1, 2, 2, 2));
  EXPECT_THAT(encode(*of_sentencepiece, "aaaaaaa"), ElementsAre(2, 2, 2, 1));
}

TEST(UnigramModel, SentencePieceItselfLeavesUnknownTextUnknown) {
  UnigramSpec spec = unigram();
  spec.vocab.emplace_back("xy", 5);
  spec.scores.push_back(-100);
  spec.unk_score = -10;  // so that two unknown characters are likelier
  const auto of_reference = UnigramModel::create(spec);
  spec.is_sentencepiece = true;
  const auto of_sentencepiece = UnigramModel::create(spec);

  EXPECT_THAT(encode(*of_reference, "axy"), ElementsAre(1, 5));
  EXPECT_THAT(encode(*of_sentencepiece, "axy"), ElementsAre(1, 0));
}

TEST(UnigramModel, AbsentEntriesAreInNoText) {
  UnigramSpec spec = unigram();
  spec.absent = {4};
  spec.is_sentencepiece = true;
  const auto model = UnigramModel::create(spec);

  EXPECT_THAT(encode(*model, "aé"), ElementsAre(1, 0));
  EXPECT_EQ(model->find("é"), 4U);
}

TEST(UnigramModel, WithoutAnUnknownTokenUnknownTextIsAnError) {
  UnigramSpec spec = unigram();
  spec.unk.reset();
  const auto model = UnigramModel::create(spec);
  UnigramScratch scratch;
  std::vector<TokenId> ids;

  EXPECT_EQ(model->encode("ax", scratch, ids).error().code(), Code::kInvalidArgument);
}

TEST(UnigramModel, RefusesScoresThatAreNoNumbers) {
  UnigramSpec spec = unigram();
  spec.scores[1] = -std::numeric_limits<double>::infinity();

  EXPECT_EQ(UnigramModel::create(spec).error().code(), Code::kCorrupt);
}

TEST(UnigramModel, LongTextsAreNoProblem) {
  const auto model = UnigramModel::create(unigram());

  EXPECT_EQ(encode(*model, std::string(2'000'000, 'a')).size(), 2'000'000U);
  EXPECT_THAT(encode(*model, std::string(2'000'000, 'x')), ElementsAre(0));
}

TEST(WordPieceModel, TakesTheLongestPartsOrNone) {
  const auto model = WordPieceModel::create(
      {.vocab = {{"[UNK]", 0}, {"un", 1}, {"##able", 2}, {"##a", 3}, {"u", 4}, {"é", 5}},
       .unk_token = "[UNK]"});
  const auto ids = [&](std::string_view word) {
    std::vector<TokenId> out;
    EXPECT_TRUE(model.encode(word, out).has_value());
    return out;
  };

  EXPECT_THAT(ids("unable"), ElementsAre(1, 2));
  EXPECT_THAT(ids("una"), ElementsAre(1, 3));
  EXPECT_THAT(ids("unx"), ElementsAre(0));
  EXPECT_THAT(ids("éa"), ElementsAre(5, 3));
  EXPECT_THAT(ids(""), IsEmpty());
  EXPECT_THAT(ids("u" + std::string(100, 'a')), ElementsAre(0));  // more than 100 characters
}

TEST(WordPieceModel, WithoutAnUnknownTokenUnknownWordsAreErrors) {
  const auto model = WordPieceModel::create({.vocab = {{"a", 0}}, .unk_token = "[UNK]"});
  std::vector<TokenId> ids = {1};

  EXPECT_EQ(model.encode("ab", ids).error().code(), Code::kInvalidArgument);
  EXPECT_THAT(ids, ElementsAre(1));
}

TEST(WordLevelModel, LooksUpWholeWords) {
  const auto model =
      WordLevelModel::create({.vocab = {{"<unk>", 0}, {"word", 5}}, .unk_token = "<unk>"});
  std::vector<TokenId> ids;

  ASSERT_TRUE(model.encode("word", ids).has_value());
  ASSERT_TRUE(model.encode("words", ids).has_value());

  EXPECT_THAT(ids, ElementsAre(5, 0));
  EXPECT_EQ(model.find("word"), 5U);
  EXPECT_EQ(WordLevelModel::create({.vocab = {}, .unk_token = "x"}).encode("a", ids).error().code(),
            Code::kInvalidArgument);
}

TEST(Charsmap, RemovingTheFirstCharacterKeepsTheStart) {
  std::array<uint32_t, 256> units{};  // "x" to nothing
  units['x'] = 'x' | 1U << 8 | 0x80U << 10;
  units['x' ^ 0x80] = 1U << 31;
  std::string bytes("\0\4\0\0", 4);
  bytes.append(reinterpret_cast<const char*>(units.data()), sizeof(units)).push_back('\0');
  Normalizer normalizer;
  normalizer.steps.emplace_back(Charsmap::parse(bytes).value());
  std::string buffer;

  const auto normalized = normalize(normalizer, "xab", buffer);

  ASSERT_TRUE(normalized);
  EXPECT_EQ(normalized->text, "ab");
  EXPECT_TRUE(normalized->keeps_start);
}

TEST(Charsmap, BrokenTablesReplaceNothing) {
  // A root whose children lie beyond the table, and a replacement beyond the texts.
  const std::string far = std::string("\x04\0\0\0\0\0\0\x40", 8) + std::string("x\0", 2);
  const auto map = Charsmap::parse(far);
  ASSERT_TRUE(map.has_value());
  std::string out;

  map->append_mapped("abc", 100, out);

  EXPECT_EQ(out, "abc");
  EXPECT_EQ(Charsmap::parse("").error().code(), Code::kCorrupt);
  EXPECT_EQ(Charsmap::parse(std::string("\xFF\xFF\xFF\xFF", 4)).error().code(), Code::kCorrupt);
  EXPECT_EQ(Charsmap::parse(std::string("\x04\0\0\0\0\0\0\0\xFF", 9)).error().code(),
            Code::kCorrupt);
}

}  // namespace
}  // namespace stator::tokenizer
