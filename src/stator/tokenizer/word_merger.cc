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
constexpr uint32_t kAtOnce = WordMerger::kSpareIds + 1;

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

constexpr size_t kPlaces = WordMerger::kBytesMax + 2;

/// Of each place that behind it, and that before it: what a word starts with.
struct Neighbours {
  std::array<uint8_t, kPlaces + kAtOnce> next;
  std::array<uint8_t, kPlaces + kAtOnce> previous;
};
constexpr Neighbours kNeighbours = [] {
  Neighbours all{};
  for (size_t place = 0; place < all.next.size(); ++place) {
    all.next[place] = static_cast<uint8_t>(place + 1);
    all.previous[place] = static_cast<uint8_t>(place - 1);
  }
  return all;
}();

}  // namespace

/// A word on its way. The byte at i has the place i + 1; the borders have the places before and
/// behind.
struct WordMerger::Turn {
  static constexpr uint32_t kNowhere = kPlaces;
  static constexpr size_t kPairsRead = 16;  // at a time: most words have fewer

  alignas(64) std::array<uint32_t, kPlaces + 1> pairs;  // the last one is not looked at
  std::array<PairRanks::Code, kPlaces + kAtOnce> symbols;
  Neighbours neighbours;  // of the places where symbols start, and both borders
  WordToEncode* word;
  uint32_t pairs_read;
  uint32_t count;  // symbols
  // The last merge, and where the ranks of its new pairs are.
  size_t at;
  size_t previous;
  PairRanks::Place with_next;
  PairRanks::Place with_previous;
  uint32_t best;  // the next merge
  // So that equal fields of many turns do not have equal lower address bits.
  std::array<std::byte, 64> spare;

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

  bool choose(const PairRanks::View& ranks);
  void merge(const PairRanks::View& ranks);

  /// Writes the symbols.
  void finish() const {
    // Without a branch on their number, as long as it is small.
    TokenId* out = word->ids;
    uint32_t place = 1;
    for (uint32_t i = 0; i < count; i += kAtOnce) {
      for (uint32_t j = i; j < i + kAtOnce; ++j) {
        out[j] = PairRanks::symbol_of(symbols[place]);
        place = neighbours.next[place];
      }
    }
    word->count = count;
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
  for (uint32_t byte = 0; byte < byte_codes_.size(); ++byte) {
    byte_codes_[byte] = PairRanks::code_of(byte);
  }
  const PairRanks::View view = ranks_.view();
  for (uint32_t both = 0; both < byte_pairs_.size(); ++both) {
    const auto place = view.place_of(byte_codes_[both >> 8], byte_codes_[both & 255]);
    byte_pairs_[both] = view.find(place) << kPlaceBits;
  }
}

void WordMerger::begin(WordToEncode& word, Turn& turn) const {
  const size_t bytes = word.word.size();
  const auto* text = reinterpret_cast<const unsigned char*>(word.word.data());
  turn.word = &word;
  turn.count = static_cast<uint32_t>(bytes);
  turn.pairs_read =
      static_cast<uint32_t>((bytes + turn.kPairsRead - 1) / turn.kPairsRead * turn.kPairsRead);
  std::fill_n(turn.pairs.begin(), turn.kPairsRead, kNoMerge);
  std::copy_n(kNeighbours.next.begin(), 2 * turn.kPairsRead, turn.neighbours.next.begin());
  std::copy_n(kNeighbours.previous.begin(), 2 * turn.kPairsRead, turn.neighbours.previous.begin());
  if (bytes > turn.kPairsRead) [[unlikely]] {
    turn.pairs.fill(kNoMerge);
    turn.neighbours = kNeighbours;
  }
  turn.neighbours.next[bytes + 1] = static_cast<uint8_t>(bytes + 1);  // finish stays there
  turn.at = turn.kNowhere;
  turn.previous = turn.kNowhere;
  turn.with_next = PairRanks::nowhere();
  turn.with_previous = PairRanks::nowhere();
  turn.symbols[0] = PairRanks::code_of(border());
  turn.symbols[bytes + 1] = PairRanks::code_of(border());
  turn.symbols[1] = byte_codes_[text[0]];
  for (size_t i = 1; i < bytes; ++i) {
    const size_t both = static_cast<size_t>(text[i - 1]) << 8 | text[i];
    turn.symbols[i + 1] = byte_codes_[text[i]];
    turn.pairs[i] = byte_pairs_[both] | static_cast<uint32_t>(i);
  }
}

/// The next merge, or false if there is none. Reads what the last one asked for.
bool WordMerger::Turn::choose(const PairRanks::View& ranks) {
  // Without the new pairs, which are not there yet: a wide load waits for narrow stores before it.
  const uint32_t least = __builtin_reduce_min(least_pairs());
  const uint32_t next = ranks.find(with_next) << kPlaceBits | static_cast<uint32_t>(at);
  const uint32_t before = ranks.find(with_previous) << kPlaceBits | static_cast<uint32_t>(previous);
  pairs[at] = next;
  pairs[previous] = before;
  best = std::min({least, next, before});
  return best < kNoMerge;
}

/// Merges, and asks for the ranks of the new pairs. No branch depends on the text.
void WordMerger::Turn::merge(const PairRanks::View& ranks) {
  const PairRanks::Code merged = PairRanks::code_of(kMerged + (best >> kPlaceBits));
  at = best & ((1U << kPlaceBits) - 1);
  previous = neighbours.previous[at];
  const size_t joined = neighbours.next[at];
  const size_t next = neighbours.next[joined];
  with_next = ranks.place_of(merged, symbols[next]);
  with_previous = ranks.place_of(symbols[previous], merged);
  ranks.prefetch(with_next);
  ranks.prefetch(with_previous);
  symbols[at] = merged;
  pairs[joined] = kNoMerge;
  pairs[at] = kNoMerge;
  pairs[previous] = kNoMerge;
  --count;
  neighbours.next[at] = static_cast<uint8_t>(next);
  neighbours.previous[next] = static_cast<uint8_t>(at);
}

/// In turns: all choose, then all merge, so that what one waits for is on its way meanwhile.
void WordMerger::encode_sorted(std::span<WordToEncode* const> words) const {
  static_assert(sizeof(Turn) / alignof(Turn) % 2 == 1);
  std::array<Turn, kTurns> turns;
  std::array<Turn*, kTurns> active;
  size_t count = std::min(kTurns, words.size());
  for (size_t i = 0; i < count; ++i) {
    active[i] = &turns[i];
    begin(*words[i], turns[i]);
  }
  const PairRanks::View ranks = ranks_.view();
  for (size_t next = count; count > 0;) {
    for (size_t i = 0; i < count;) {
      if (active[i]->choose(ranks)) [[likely]] {
        ++i;
        continue;
      }
      active[i]->finish();
      if (next < words.size()) {
        begin(*words[next++], *active[i]);
      } else {
        std::swap(active[i], active[--count]);
      }
    }
    for (size_t i = 0; i < count; ++i) {
      active[i]->merge(ranks);
    }
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
