// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/word_merger.h"

#include "stator/core/assert.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

namespace stator::tokenizer {
namespace {

// Enough words to hide the latency of memory: 8 to 16 were a few percent slower.
constexpr size_t kTurns = 20;

// Words that are sorted by length at a time.
constexpr size_t kChunkWords = 256;

// Results that are written at a time, whatever their number.
constexpr int kAtOnce = WordMerger::kSpareIds + 1;

using Quad [[gnu::vector_size(16)]] = uint32_t;

/// The symbols of the merges' parts.
std::vector<PairRanks::Pair> pairs_of(std::span<const TokenPairs::Merge> merges,
                                      std::span<const TokenId> tokens) {
  std::vector<uint32_t> symbols(std::ranges::max(tokens) + size_t{1});
  for (uint32_t symbol = 0; symbol < tokens.size(); ++symbol) {
    symbols[tokens[symbol]] = symbol;
  }
  std::vector<PairRanks::Pair> pairs;
  pairs.reserve(merges.size());
  for (const TokenPairs::Merge& merge : merges) {
    pairs.push_back({symbols[merge.left], symbols[merge.right]});
  }
  return pairs;
}

HugeVector<TokenId> tokens_of(std::span<const TokenId, 256> bytes,
                              std::span<const TokenPairs::Merge> merges) {
  HugeVector<TokenId> tokens(bytes.begin(), bytes.end());
  for (const TokenPairs::Merge& merge : merges) {
    tokens.push_back(merge.rule.merged);
  }
  return tokens;
}

uint32_t lowest(uint64_t places) {
  return static_cast<uint32_t>(__builtin_ctzll(places));
}

uint32_t highest(uint64_t places) {
  return static_cast<uint32_t>(63 ^ __builtin_clzll(places));
}

}  // namespace

/// A word on its way. The byte at i has the place i + 1; the borders have the places before and
/// behind.
struct WordMerger::Turn {
  static constexpr size_t kPlaces = kBytesMax + 2;
  static constexpr uint32_t kNowhere = kPlaces;
  static constexpr uint64_t kBorderPlace = uint64_t{1} << (kPlaces - 1);
  static constexpr size_t kPairsRead = 16;  // at a time: most words have fewer

  alignas(64) std::array<uint32_t, kPlaces + 1> pairs;  // the last one is not looked at
  std::array<uint32_t, kPlaces> symbols;
  uint64_t starts;  // places where symbols start, and both borders
  WordToEncode* word;
  size_t pairs_read;
  // The last merge, and where the ranks of its new pairs are.
  uint32_t at;
  uint32_t previous;
  PairRanks::Place with_next;
  PairRanks::Place with_previous;
  uint32_t best;  // the next merge

  /// Four lanes, each the least of a quarter of the pairs.
  Quad least_pairs() const {
    Quad least = least_pairs(0);
    for (size_t i = kPairsRead; i < pairs_read; i += kPairsRead) [[unlikely]] {
      least = __builtin_elementwise_min(least, least_pairs(i));
    }
    return least;
  }
  Quad least_pairs(size_t from) const {
    std::array<Quad, kPairsRead / 4> quads;
    std::memcpy(quads.data(), pairs.data() + from, sizeof(quads));
    return __builtin_elementwise_min(__builtin_elementwise_min(quads[0], quads[1]),
                                     __builtin_elementwise_min(quads[2], quads[3]));
  }

  /// Writes the symbols.
  void finish() const {
    // Without a branch on their number; the lowest start is the border's.
    TokenId* out = word->ids;
    uint64_t left = starts & (starts - 1);
    for (int count = std::popcount(left) - 1; count > 0; count -= kAtOnce) {
      for (int i = 0; i < kAtOnce; ++i) {
        out[i] = symbols[lowest(left | kBorderPlace)];
        left &= left - 1;
      }
      out += std::min(count, kAtOnce);
    }
    word->count = static_cast<uint32_t>(out - word->ids);
  }
};

std::optional<WordMerger> WordMerger::create(std::span<const TokenId, 256> bytes,
                                             std::span<const TokenPairs::Merge> merges) {
  HugeVector<TokenId> tokens = tokens_of(bytes, merges);
  auto ranks = PairRanks::create(pairs_of(merges, tokens));
  if (!ranks) {
    return std::nullopt;
  }
  return WordMerger(*std::move(ranks), std::move(tokens));
}

WordMerger::WordMerger(PairRanks ranks, HugeVector<TokenId> tokens)
    : ranks_(std::move(ranks)), tokens_(std::move(tokens)), byte_pairs_(size_t{1} << 16) {
  tokens_.push_back(0);
  STATOR_ASSERT(border() < PairRanks::kSymbolsMax, "symbols fit their bits");
  for (uint32_t both = 0; both < byte_pairs_.size(); ++both) {
    byte_pairs_[both] = ranks_.find(ranks_.place_of(both >> 8, both & 255)) << kPlaceBits;
  }
}

void WordMerger::begin(WordToEncode& word, Turn& turn) const {
  const size_t bytes = word.word.size();
  const auto* text = reinterpret_cast<const unsigned char*>(word.word.data());
  turn.word = &word;
  turn.starts = UINT64_MAX >> (kBytesMax - bytes);
  turn.pairs_read = (bytes + turn.kPairsRead - 1) / turn.kPairsRead * turn.kPairsRead;
  std::fill_n(turn.pairs.begin(), turn.kPairsRead, kNoMerge);
  if (bytes > turn.kPairsRead) [[unlikely]] {
    turn.pairs.fill(kNoMerge);
  }
  turn.at = turn.kNowhere;
  turn.previous = turn.kNowhere;
  turn.with_next = PairRanks::kNowhere;
  turn.with_previous = PairRanks::kNowhere;
  turn.symbols.back() = border();
  turn.symbols[0] = border();
  turn.symbols[bytes + 1] = border();
  turn.symbols[1] = text[0];
  for (size_t i = 1; i < bytes; ++i) {
    const size_t both = static_cast<size_t>(text[i - 1]) << 8 | text[i];
    turn.symbols[i + 1] = text[i];
    turn.pairs[i] = byte_pairs_[both] | static_cast<uint32_t>(i);
  }
}

/// The next merge, or false if there is none. Reads what the last one asked for.
bool WordMerger::choose(Turn& turn) const {
  // Without the new pairs, which are not there yet: a wide load waits for narrow stores before it.
  const uint32_t least = __builtin_reduce_min(turn.least_pairs());
  const uint32_t with_next = ranks_.find(turn.with_next) << kPlaceBits | turn.at;
  const uint32_t with_previous = ranks_.find(turn.with_previous) << kPlaceBits | turn.previous;
  turn.pairs[turn.at] = with_next;
  turn.pairs[turn.previous] = with_previous;
  turn.best = std::min({least, with_next, with_previous});
  return turn.best < kNoMerge;
}

/// Merges, and asks for the ranks of the new pairs. No branch depends on the text.
void WordMerger::merge(Turn& turn) const {
  const uint32_t best = turn.best;
  const uint32_t merged = kMerged + (best >> kPlaceBits);
  const uint32_t at = best & ((1U << kPlaceBits) - 1);
  uint64_t after = turn.starts & (UINT64_MAX << at << 1);
  const uint32_t joined = lowest(after);
  after &= after - 1;
  turn.at = at;
  turn.previous = highest(turn.starts & ~(UINT64_MAX << at));
  turn.with_next = ranks_.place_of(merged, turn.symbols[lowest(after)]);
  turn.with_previous = ranks_.place_of(turn.symbols[turn.previous], merged);
  ranks_.prefetch(turn.with_next);
  ranks_.prefetch(turn.with_previous);
  turn.starts &= ~(uint64_t{1} << joined);
  turn.symbols[at] = merged;
  turn.pairs[joined] = kNoMerge;
  turn.pairs[at] = kNoMerge;
  turn.pairs[turn.previous] = kNoMerge;
}

/// In turns.
void WordMerger::encode_sorted(std::span<WordToEncode* const> words) const {
  std::array<Turn, kTurns> turns;
  std::array<Turn*, kTurns> active;
  for (size_t i = 0; i < kTurns; ++i) {
    active[i] = &turns[i];
  }
  size_t count = 0;
  for (size_t next = 0; count > 0 || next < words.size();) {
    size_t left = 0;
    for (size_t i = 0; i < count; ++i) {
      if (choose(*active[i])) [[likely]] {
        std::swap(active[left++], active[i]);
      } else {
        active[i]->finish();
      }
    }
    for (size_t i = 0; i < left; ++i) {
      merge(*active[i]);
    }
    // Last, so that what begin writes has arrived when choose reads it.
    for (; left < kTurns && next < words.size(); ++left) {
      begin(*words[next++], *active[left]);
    }
    count = left;
  }
}

/// Symbols to tokens; for many words at once, so that the memory accesses overlap.
void WordMerger::translate(const WordToEncode& word) const {
  for (uint32_t i = 0; i < word.count; i += kAtOnce) {
    for (uint32_t j = i; j < i + kAtOnce; ++j) {
      word.ids[j] = tokens_[word.ids[j]];
    }
  }
}

/// Longest first: words in turn take the same way through the code, and none of those that take
/// many turns is left alone at the end.
void WordMerger::encode(std::span<WordToEncode> words) const {
  while (!words.empty()) {
    const auto chunk = words.first(std::min(words.size(), kChunkWords));
    words = words.subspan(chunk.size());
    std::array<uint16_t, kBytesMax + 1> longer{};  // words of more bytes than the index
    for (const WordToEncode& word : chunk) {
      ++longer[word.word.size() - 1];
    }
    for (size_t bytes = kBytesMax; bytes > 0; --bytes) {
      longer[bytes - 1] += longer[bytes];
    }
    std::array<WordToEncode*, kChunkWords> sorted;
    for (WordToEncode& word : chunk) {
      sorted[longer[word.word.size()]++] = &word;
    }
    encode_sorted(std::span(sorted).first(chunk.size()));
    for (const WordToEncode& word : chunk) {
      translate(word);
    }
  }
}

}  // namespace stator::tokenizer
