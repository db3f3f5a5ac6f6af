// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/byte_bpe.h"

#include "stator/core/random.h"
#include "stator/tokenizer/piece_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <string>

namespace stator::tokenizer {
namespace {

/// All bytes as tokens 0 … 255, and the tokens of the merges given by their parts.
class Words {
 public:
  Words() {
    for (TokenId byte = 0; byte < 256; ++byte) {
      bytes_[byte] = byte;
      add(std::string(1, static_cast<char>(byte)));
    }
  }

  Words& merge(const std::string& left, const std::string& right) {
    const auto rank = static_cast<uint32_t>(merges_.size());
    for (const std::string& text : {left, right, left + right}) {
      if (find(text) == UINT32_MAX) {
        add(text);
      }
    }
    merges_.push_back({find(left), find(right), {rank, find(left + right)}});
    return *this;
  }

  TokenId find(std::string_view text) const {
    const auto found = std::ranges::find(entries_, text, &TokenTrie::Entry::first);
    return found == entries_.end() ? UINT32_MAX : found->second;
  }

  MergeTable table() const {
    MergeTable table(merges_.size());
    for (const auto& [left, right, rule] : merges_) {
      table.insert(left, right, rule);
    }
    return table;
  }

  std::optional<TokenPairs> pairs() const {
    const MergeTable merges = table();
    return TokenPairs::create(
        {.entries = entries_, .bytes = bytes_, .merges = merges_, .table = merges});
  }

  ByteBpe make() const {
    auto formed_pairs = pairs();
    EXPECT_TRUE(formed_pairs);
    auto formed = entries_;
    std::erase_if(formed,
                  [&](const auto& entry) { return !formed_pairs->is_formed(entry.second); });
    auto model = ByteBpe::create(*std::move(formed_pairs), bytes_, std::move(formed));
    EXPECT_TRUE(model);
    return *std::move(model);
  }

  std::vector<TokenPairs::Merge>& merges() { return merges_; }

 private:
  void add(std::string text) {
    texts_.push_back(std::move(text));
    entries_.emplace_back(texts_.back(), static_cast<TokenId>(entries_.size()));
  }

  std::deque<std::string> texts_;
  std::vector<TokenTrie::Entry> entries_;
  std::array<TokenId, 256> bytes_{};
  std::vector<TokenPairs::Merge> merges_;
};

std::vector<TokenId> encode(const ByteBpe& model, std::string_view word, ByteBpeScratch& scratch) {
  std::vector<TokenId> ids;
  model.encode(word, scratch, ids);
  return ids;
}

TEST(TokenPairs, TellsWhichTokensTheirOwnBytesGive) {
  Words words;
  words.merge("b", "c").merge("a", "b").merge("ab", "c").merge("a", "bc");
  const auto pairs = words.pairs();

  ASSERT_TRUE(pairs);
  EXPECT_TRUE(pairs->is_formed(words.find("abc")));  // by "a" + "bc": "bc" comes first
  EXPECT_TRUE(pairs->is_formed(words.find("ab")));
  EXPECT_TRUE(pairs->may_touch(words.find("ab"), words.find("b")));
  EXPECT_FALSE(pairs->may_touch(words.find("ab"), words.find("c")));
  EXPECT_FALSE(pairs->may_touch(words.find("a"), words.find("bc")));
}

TEST(TokenPairs, SeesTokensThatNothingForms) {
  Words words;
  words.merge("b", "c").merge("a", "b").merge("ab", "c");
  const auto pairs = words.pairs();

  ASSERT_TRUE(pairs);
  EXPECT_FALSE(pairs->is_formed(words.find("abc")));
  EXPECT_TRUE(pairs->may_touch(words.find("a"), words.find("bc")));
}

TEST(TokenPairs, ReplaysTokensWhoseMergesAreOutOfOrder) {
  Words words;
  words.merge("ab", "c").merge("a", "b").merge("c", "d");  // "abc" follows at once on "ab"
  ByteBpeScratch scratch;

  const ByteBpe model = words.make();

  EXPECT_TRUE(model.is_formed(words.find("abc")));
  EXPECT_EQ(encode(model, "abcd", scratch),
            (std::vector<TokenId>{words.find("abc"), words.find("d")}));
  EXPECT_EQ(encode(model, "acd", scratch),
            (std::vector<TokenId>{words.find("a"), words.find("cd")}));
}

TEST(TokenPairs, RefusesWhatItCannotJudge) {
  Words byte_made;
  byte_made.merge("a", "b").merges().back().rule.merged = 'c';
  Words same_rank;
  same_rank.merge("a", "b").merge("b", "c").merges().back().rule.rank = 0;
  Words far_rank;
  far_rank.merge("a", "b").merges().back().rule.rank = TokenPairs::kRanksMax;

  EXPECT_FALSE(byte_made.pairs());
  EXPECT_FALSE(same_rank.pairs());
  EXPECT_FALSE(far_rank.pairs());
}

TEST(ByteBpe, GoesBackFromDeadEnds) {
  Words words;
  words.merge("c", "d").merge("a", "b").merge("ab", "c");
  ByteBpeScratch scratch;

  // "abc" is the longest token, but "cd" merges first.
  EXPECT_EQ(encode(words.make(), "abcd", scratch),
            (std::vector<TokenId>{words.find("ab"), words.find("cd")}));
}

TEST(ByteBpe, ScratchServesSeveralModels) {
  Words joined;
  joined.merge("a", "b");
  Words apart;
  apart.merge("b", "c");
  const ByteBpe first = joined.make();
  const ByteBpe second = apart.make();
  ByteBpeScratch scratch;
  const std::string rest(WordMerger::kBytesMax, 'x');  // too long for merging
  const std::vector<TokenId> rest_ids(rest.size(), 'x');
  const auto with_rest = [&](std::vector<TokenId> ids) {
    ids.insert(ids.end(), rest_ids.begin(), rest_ids.end());
    return ids;
  };

  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(encode(first, "abc" + rest, scratch), with_rest({256, 'c'}));
    EXPECT_EQ(encode(second, "abc" + rest, scratch), with_rest({'a', 256}));
  }
}

/// Random vocabularies over few letters, so that merges compete.
Words make_random_words(Random& random) {
  Words words;
  std::vector<std::string> texts = {"a", "b", "c", "d"};
  for (int i = 0; i < 60; ++i) {
    const std::string left = texts[random.below(texts.size())];
    const std::string right = texts[random.below(texts.size())];
    if (left.size() + right.size() <= 12 && words.find(left + right) == UINT32_MAX) {
      words.merge(left, right);
      texts.push_back(left + right);
    }
  }
  return words;
}

TEST(WordMerger, EncodesAsTheBacktrackingEncoderDoes) {
  Random random(7);
  for (int round = 0; round < 40; ++round) {
    const Words words = make_random_words(random);
    const ByteBpe model = words.make();
    std::deque<std::string> texts;
    std::vector<WordToEncode> turns;
    std::vector<TokenId> ids(300 * (WordMerger::kBytesMax + WordMerger::kSpareIds));
    for (size_t i = 0; i < 300; ++i) {
      std::string text;
      for (uint64_t left = 1 + random.below(WordMerger::kBytesMax); left > 0; --left) {
        text += static_cast<char>('a' + random.below(5));
      }
      texts.push_back(text);
      turns.push_back({.word = texts.back(),
                       .ids = ids.data() + i * (WordMerger::kBytesMax + WordMerger::kSpareIds)});
    }

    model.encode_short(turns);

    ByteBpeScratch scratch;
    for (const WordToEncode& turn : turns) {
      // What follows cannot merge with the word, and makes it too long for merging.
      const std::string longer = std::string(turn.word) + std::string(WordMerger::kBytesMax, 'x');
      std::vector<TokenId> expected = encode(model, longer, scratch);
      expected.resize(expected.size() - WordMerger::kBytesMax);
      ASSERT_EQ(std::vector<TokenId>(turn.ids, turn.ids + turn.count), expected) << turn.word;
    }
  }
}

uint32_t find(const PairRanks& ranks, uint32_t left, uint32_t right) {
  const PairRanks::View view = ranks.view();
  return view.find(view.place_of(PairRanks::code_of(left), PairRanks::code_of(right)));
}

uint64_t hash(uint32_t left, uint32_t right) {
  return PairRanks::hash_of(PairRanks::code_of(left), PairRanks::code_of(right));
}

PairRanks make(const std::vector<PairRanks::Pair>& pairs) {
  auto ranks = PairRanks::create(pairs);
  EXPECT_TRUE(ranks);
  return *std::move(ranks);
}

TEST(PairRanks, RefusesPairsThatWereChosenToCollide) {
  Random random(10);
  std::vector<PairRanks::Pair> pairs;
  std::set<std::pair<uint32_t, uint32_t>> known;
  while (pairs.size() < 4'000) {  // all of them in the first few buckets
    const auto left = static_cast<uint32_t>(random.below(20'000));
    const auto right = static_cast<uint32_t>(random.below(20'000));
    if (hash(left, right) >> 54 == 0 && known.emplace(left, right).second) {
      pairs.push_back({left, right});
    }
  }

  EXPECT_FALSE(PairRanks::create(pairs));
}

TEST(PairRanks, FindsEveryPairAndNoOther) {
  Random random(8);
  std::vector<PairRanks::Pair> pairs;
  std::set<std::pair<uint32_t, uint32_t>> known;
  while (pairs.size() < 20'000) {
    const auto left = static_cast<uint32_t>(random.below(30'000));
    const auto right = static_cast<uint32_t>(random.below(30'000));
    if (known.emplace(left, right).second) {
      pairs.push_back({left, right});
    }
  }
  const PairRanks ranks = make(pairs);
  for (uint32_t rank = 0; rank < pairs.size(); ++rank) {
    const auto [left, right] = pairs[rank];
    ASSERT_EQ(find(ranks, left, right), rank);
    const bool is_known = known.contains({right, left});
    ASSERT_EQ(find(ranks, right, left) != PairRanks::kNone, is_known);
    ASSERT_EQ(find(ranks, left, right + 30'000), PairRanks::kNone);
  }
  EXPECT_EQ(ranks.view().find(PairRanks::nowhere()), PairRanks::kNone);
}

TEST(PairRanks, TakesAnyNumberOfPairs) {
  for (const size_t count : {0U, 1U, 2U, 3U, 7U, 100U, 5000U}) {
    std::vector<PairRanks::Pair> pairs;
    for (uint32_t i = 0; i < count; ++i) {
      pairs.push_back({i, i});
    }
    const PairRanks ranks = make(pairs);
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(find(ranks, i, i), i);
    }
    EXPECT_EQ(find(ranks, 1, 2), PairRanks::kNone);
    EXPECT_EQ(ranks.view().find(PairRanks::nowhere()), PairRanks::kNone);
  }
}

TEST(PairRanks, TellsTheLastSymbolsApart) {
  constexpr uint32_t kLast = PairRanks::kSymbolsMax - 1;
  const PairRanks ranks = make({{kLast, kLast}, {kLast - 1, kLast}});

  EXPECT_EQ(find(ranks, kLast, kLast), 0);
  EXPECT_EQ(find(ranks, kLast - 1, kLast), 1);
  EXPECT_EQ(find(ranks, kLast, kLast - 1), PairRanks::kNone);
  EXPECT_EQ(find(ranks, kLast, 0), PairRanks::kNone);
}

TEST(ByteBpe, WorkIsLinearInTheLengthOfAWord) {
  Words words;
  for (const char* text : {"a", "aa", "aaaa"}) {
    words.merge(text, text);
  }
  words.merge("a", "b").merge("b", "a").merge("ab", "ab").merge("aaaa", "b");
  const ByteBpe model = words.make();
  Random random(5);
  std::string word;
  uint64_t previous = 0;
  for (size_t length = 1000; length <= 256'000; length *= 2) {
    while (word.size() < length) {
      word += random.below(3) == 0 ? 'b' : 'a';
    }
    ByteBpeScratch scratch;
    encode(model, word, scratch);

    EXPECT_LE(scratch.steps, 5 * length);
    EXPECT_TRUE(previous == 0 || scratch.steps <= previous * 5 / 2) << length;
    previous = scratch.steps;
  }
}

TEST(TokenTrie, FindsTheLongestTokenThatATextStartsWith) {
  Random random(6);
  std::deque<std::string> texts;
  std::vector<TokenTrie::Entry> entries;
  for (TokenId id = 0; id < 3000; ++id) {
    std::string text;
    for (uint64_t i = 1 + random.below(6); i > 0; --i) {
      text += static_cast<char>(random.below(4) == 0 ? random.below(256) : 'a' + random.below(4));
    }
    if (std::ranges::find(texts, text) == texts.end()) {
      texts.push_back(text);
      entries.emplace_back(texts.back(), id);
    }
  }
  const auto by_text = entries;
  const TokenTrie trie(entries);
  for (int round = 0; round < 2000; ++round) {
    std::string text = texts[random.below(texts.size())] + texts[random.below(texts.size())];
    TokenTrie::Match expected{0, 0};
    for (const auto& [token_text, id] : by_text) {
      if (token_text.size() > expected.bytes && text.starts_with(token_text)) {
        expected = {id, static_cast<uint32_t>(token_text.size())};
      }
    }

    const TokenTrie::Match match = trie.find_longest(text);

    ASSERT_EQ(match.bytes, expected.bytes);
    ASSERT_EQ(match.token, expected.token);
  }
  EXPECT_EQ(TokenTrie().find_longest("a").bytes, 0);
  EXPECT_EQ(trie.find_longest("").bytes, 0);
}

TEST(PieceTable, FindsPiecesOfEveryLength) {
  std::deque<std::string> texts;
  std::vector<PieceTable::Entry> entries;
  for (size_t bytes = 1; bytes <= PieceTable::kBytesMax + 2; ++bytes) {
    for (const char c : {'a', '\0', '\xFF'}) {
      texts.push_back(std::string(bytes - 1, c) + 'z');
      if (bytes > 1 || c == 'a') {
        entries.emplace_back(texts.back(), static_cast<TokenId>(4'000'000 + entries.size()));
      }
    }
  }
  const auto expected = entries;
  const PieceTable table(entries);
  for (const auto& [text, id] : expected) {
    const bool fits = text.size() <= PieceTable::kBytesMax;
    EXPECT_EQ(table.find(text), fits ? id : PieceTable::kNone) << text.size();
    EXPECT_EQ(table.find(std::string(text) + '\0'), PieceTable::kNone);
    EXPECT_EQ(table.find('b' + std::string(text).substr(1) + 'b'), PieceTable::kNone);
  }
  EXPECT_EQ(PieceTable().find("a"), PieceTable::kNone);
  EXPECT_EQ(PieceTable().find("a long piece of text"), PieceTable::kNone);
}

}  // namespace
}  // namespace stator::tokenizer
