// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/bpe_model.h"

#include "stator/core/random.h"
#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/pair_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>

namespace stator::tokenizer {
namespace {

/// A vocabulary of all bytes and random merges over "ab "; owns what the BpeSpec views.
class RandomVocab {
 public:
  RandomVocab(Random& random, int merges) {
    for (int byte = 0; byte < 256; ++byte) {
      add(std::string(ByteAlphabet::get().character(static_cast<unsigned char>(byte))));
    }
    std::vector<std::string> known = {"a", "b", "Ġ"};
    for (int i = 0; i < merges; ++i) {
      const std::string left = known[random.below(known.size())];
      const std::string right = known[random.below(known.size())];
      if (left.size() + right.size() > 12) {
        continue;
      }
      known.push_back(left + right);
      merge(left, right);
    }
  }

  void merge(const std::string& left, const std::string& right) {
    if (!ids_.contains(left + right)) {
      add(left + right);
    }
    merges_.emplace_back(left, right);
    spec_.merges.emplace_back(merges_.back().first, merges_.back().second);
  }

  const BpeSpec& spec() const { return spec_; }

  /// The definition: again and again the lowest-ranked adjacent pair, the leftmost of equals.
  std::vector<TokenId> naive(std::string_view bytes) const {
    std::vector<std::string> parts;
    for (const char byte : bytes) {
      parts.emplace_back(ByteAlphabet::get().character(static_cast<unsigned char>(byte)));
    }
    while (true) {
      std::optional<std::pair<size_t, size_t>> best;  // rank, position
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        // Of equal merges the last counts.
        for (size_t rank = merges_.size(); rank-- > 0;) {
          if (merges_[rank] == std::pair(parts[i], parts[i + 1])) {
            best = std::min(best.value_or(std::pair(rank, i)), std::pair(rank, i));
            break;
          }
        }
      }
      if (!best) {
        break;
      }
      parts[best->second] += parts[best->second + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best->second) + 1);
    }
    std::vector<TokenId> ids;
    for (const std::string& part : parts) {
      ids.push_back(ids_.at(part));
    }
    return ids;
  }

 private:
  void add(std::string text) {
    texts_.push_back(std::move(text));
    const auto id = static_cast<TokenId>(spec_.vocab.size());
    ids_.emplace(texts_.back(), id);
    spec_.vocab.emplace_back(texts_.back(), id);
  }

  std::deque<std::string> texts_;
  std::deque<std::pair<std::string, std::string>> merges_;
  FlatMap<std::string, TokenId> ids_;
  BpeSpec spec_;
};

std::vector<TokenId> encode(const BpeModel& model, std::string_view piece) {
  BpeScratch scratch;
  std::vector<TokenId> ids;
  model.encode(piece, scratch, ids);
  return ids;
}

BpeModel make(const BpeSpec& spec, BpeModel::Alphabet alphabet) {
  auto model = BpeModel::create(spec, alphabet);
  EXPECT_TRUE(model.has_value());
  return *std::move(model);
}

TEST(BpeModel, EqualsTheDefinitionWhereMergesWereChosenToCollide) {
  Random random(9);
  RandomVocab vocab(random, 0);
  std::vector<PairRanks::Pair> pairs;
  std::string bytes;
  for (uint32_t left = 0; left < 256; ++left) {
    for (uint32_t right = 0; right < 256; ++right) {
      if (PairRanks::hash_of(PairRanks::code_of(left), PairRanks::code_of(right)) <
          UINT64_MAX / 256 * 10) {
        pairs.push_back({left, right});
        vocab.merge(std::string(ByteAlphabet::get().character(static_cast<unsigned char>(left))),
                    std::string(ByteAlphabet::get().character(static_cast<unsigned char>(right))));
        bytes += {static_cast<char>(left), static_cast<char>(right)};
      }
    }
  }
  ASSERT_FALSE(PairRanks::create(pairs));  // so that the model has to do without

  const BpeModel model = make(vocab.spec(), BpeModel::Alphabet::kBytes);

  for (int round = 0; round < 10; ++round) {
    const std::string word = bytes.substr(random.below(bytes.size()), 1 + random.below(16));
    ASSERT_EQ(encode(model, word), vocab.naive(word)) << "in round " << round;
  }
}

TEST(BpeModel, EqualsTheDefinitionForShortAndLongWords) {
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    const RandomVocab vocab(random, 25);
    const BpeModel model = make(vocab.spec(), BpeModel::Alphabet::kBytes);
    for (const uint64_t length_max : {4, 30, 120}) {
      std::string word;
      for (uint64_t i = 1 + random.below(length_max); i > 0; --i) {
        word.push_back("ab "[random.below(3)]);
      }

      ASSERT_EQ(encode(model, word), vocab.naive(word)) << word << " in round " << round;
    }
  }
}

TEST(BpeModel, BytesAndCharactersGiveTheSameIds) {
  Random random(8);
  const RandomVocab vocab(random, 40);
  const BpeModel bytes = make(vocab.spec(), BpeModel::Alphabet::kBytes);
  const BpeModel characters = make(vocab.spec(), BpeModel::Alphabet::kCharacters);
  for (const std::string_view word : {"abba b", "\xFF\x00 caf\xC3\xA9", " "}) {
    std::string mapped;
    ByteAlphabet::get().append_mapped(word, mapped);

    EXPECT_EQ(encode(bytes, word), encode(characters, mapped));
  }
}

TEST(BpeModel, WorkIsLinearInTheLengthOfAWord) {
  Random random(9);
  const RandomVocab vocab(random, 60);
  const BpeModel model = make(vocab.spec(), BpeModel::Alphabet::kCharacters);
  for (size_t length = 1000; length <= 256'000; length *= 2) {
    std::string word(length, 'a');
    for (size_t i = 0; i < length; i += 1 + random.below(3)) {
      word[i] = 'b';
    }
    BpeScratch scratch;
    std::vector<TokenId> ids;

    model.encode(word, scratch, ids);

    EXPECT_LE(scratch.queue_pops, 3 * length);
    EXPECT_GT(scratch.queue_pops, 0);
  }
}

TEST(BpeModel, WholePieceWinsOverMergesWhenTheyAreIgnored) {
  BpeSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}};
  spec.merges = {{"a", "b"}};

  EXPECT_EQ(encode(make(spec, BpeModel::Alphabet::kCharacters), "abc"),
            (std::vector<TokenId>{3, 2}));
  spec.ignore_merges = true;
  EXPECT_EQ(encode(make(spec, BpeModel::Alphabet::kCharacters), "abc"), (std::vector<TokenId>{4}));
}

TEST(BpeModel, UnknownCharactersVanishFuseOrFallBackToBytes) {
  BpeSpec spec;
  spec.vocab = {{"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  const auto ids = [&](std::string_view text) {
    return encode(make(spec, BpeModel::Alphabet::kCharacters), text);
  };

  EXPECT_EQ(ids("axya"), (std::vector<TokenId>{0, 0}));
  spec.unk_token = "<unk>";
  EXPECT_EQ(ids("axya"), (std::vector<TokenId>{0, 1, 1, 0}));
  spec.fuse_unk = true;
  EXPECT_EQ(ids("axya"), (std::vector<TokenId>{0, 1, 0}));
  spec.byte_fallback = true;
  EXPECT_EQ(ids("a\xC3\xA9x"), (std::vector<TokenId>{0, 2, 3, 1}));
}

TEST(BpeModel, FallsBackToTheBytesOfPrefixAndSuffixToo) {
  BpeSpec spec;
  spec.vocab = {{"a", 0},      {"<0xC3>", 1}, {"<0xA9>", 2}, {"<0x23>", 3},
                {"<0x2F>", 4}, {"a/", 5},     {"#a", 6}};
  spec.byte_fallback = true;
  spec.continuing_subword_prefix = "#";
  spec.end_of_word_suffix = "/";
  const BpeModel model = make(spec, BpeModel::Alphabet::kCharacters);

  EXPECT_EQ(encode(model, "\xC3\xA9\xC3\xA9\xC3\xA9"),
            (std::vector<TokenId>{1, 2, 3, 1, 2, 3, 1, 2, 4}));
  EXPECT_EQ(encode(model, "aa\xC3\xA9"), (std::vector<TokenId>{0, 6, 3, 1, 2, 4}));
  EXPECT_EQ(encode(model, "a"), (std::vector<TokenId>{5}));
}

TEST(BpeModel, CutsAtSpaceMarksOnlyIfNoMergeCrossesThem) {
  BpeSpec spec;
  spec.vocab = {{"▁", 0}, {"a", 1}, {"▁a", 2}, {"▁▁", 3}, {"a▁", 4}};
  spec.merges = {{"▁", "a"}, {"▁", "▁"}};
  const std::string_view text = "▁▁a▁a";

  EXPECT_EQ(make(spec, BpeModel::Alphabet::kCharacters).find_part_end(text, 0), 7);
  spec.merges.emplace_back("a", "▁");
  EXPECT_EQ(make(spec, BpeModel::Alphabet::kCharacters).find_part_end(text, 0), text.size());
}

TEST(BpeModel, ATokenWithoutTextIsNowhere) {
  Random random(5);
  const RandomVocab vocab(random, 20);
  const BpeModel without = make(vocab.spec(), BpeModel::Alphabet::kBytes);
  BpeSpec spec = vocab.spec();
  spec.vocab.emplace_back("", spec.vocab.size());
  for (const bool ignores_merges : {false, true}) {
    spec.ignore_merges = ignores_merges;
    for (const auto alphabet : {BpeModel::Alphabet::kBytes, BpeModel::Alphabet::kCharacters}) {
      const BpeModel with = make(spec, alphabet);
      EXPECT_EQ(encode(with, "ab"), encode(without, "ab"));
      EXPECT_TRUE(with.find("").has_value());
    }
  }
}

TEST(BpeModel, AnUnknownTokenThatNothingNeedsMayBeMissing) {
  Random random(6);
  const RandomVocab vocab(random, 0);
  BpeSpec bytes = vocab.spec();
  bytes.unk_token = "[UNK]";
  BpeSpec fallback = bytes;
  std::deque<std::string> names;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    fallback.vocab.emplace_back(names.emplace_back(fmt::format("<0x{:02X}>", byte)), 256 + byte);
  }
  fallback.byte_fallback = true;

  EXPECT_EQ(encode(make(bytes, BpeModel::Alphabet::kBytes), "a").size(), 1U);
  EXPECT_EQ(encode(make(fallback, BpeModel::Alphabet::kCharacters), "中").size(), 3U);
  EXPECT_FALSE(BpeModel::create(bytes, BpeModel::Alphabet::kCharacters).has_value());
}

TEST(BpeModel, RefusesMergesAndUnknownTokensOutsideOfTheVocabulary) {
  BpeSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}};
  spec.merges = {{"a", "b"}};
  const auto no_merged = BpeModel::create(spec, BpeModel::Alphabet::kCharacters);
  spec.merges.clear();
  spec.unk_token = "<unk>";
  const auto no_unk = BpeModel::create(spec, BpeModel::Alphabet::kCharacters);

  ASSERT_FALSE(no_merged.has_value());
  EXPECT_EQ(no_merged.error().code(), Code::kCorrupt);
  ASSERT_FALSE(no_unk.has_value());
  EXPECT_EQ(no_unk.error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace stator::tokenizer
