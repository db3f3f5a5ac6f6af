// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"
#include "stator/tokenizer/pair_ranks.h"
#include "stator/tokenizer/token_pairs.h"

namespace stator::tokenizer {

/// A word to encode and its result.
struct WordToEncode {
  std::string_view word;   ///< not empty
  TokenId* ids = nullptr;  ///< written: room for one per byte and WordMerger::kSpareIds
  uint32_t count = 0;      ///< written
};

/// Byte-pair encoding of short words by the definition: the pair of lowest rank merges, the
/// leftmost of equals. Several words take turns, so that one's memory accesses overlap with the
/// work on the others. Quadratic in the length of a word, hence only for short ones. Immutable and
/// thread-safe; 2 MiB for 128,000 merges.
///
/// Works on symbols instead of tokens: the bytes, then what merges give, in order of their ranks.
/// So a rank is enough to know what a merge gives.
class WordMerger {
 public:
  static constexpr size_t kBytesMax = 62;
  static constexpr size_t kSpareIds = 3;  ///< may be written behind the result

  /// `bytes` are the tokens of single bytes, `merges` all merges in order of rank, each of another
  /// pair and to another token. Nothing if PairRanks cannot take them.
  static std::optional<WordMerger> create(std::span<const TokenId, 256> bytes,
                                          std::span<const TokenPairs::Merge> merges);

  /// For words of up to kBytesMax bytes.
  void encode(std::span<WordToEncode> words) const;

 private:
  WordMerger(PairRanks ranks, HugeVector<TokenId> tokens);

  struct Turn;
  void begin(WordToEncode& word, Turn& turn) const;
  void translate(const WordToEncode& word) const;
  void encode_sorted(std::span<WordToEncode* const> words) const;

  // Pairs of neighbours as rank << kPlaceBits | place of the left one: the least is the next merge.
  static constexpr int kPlaceBits = 6;
  static constexpr uint32_t kNoMerge = PairRanks::kNone << kPlaceBits;
  static_assert(PairRanks::kRankBits + kPlaceBits <= 32);

  static constexpr uint32_t kMerged = 256;  // the first symbol that is no byte

  uint32_t border() const { return static_cast<uint32_t>(tokens_.size() - 1); }

  PairRanks ranks_;
  HugeVector<TokenId> tokens_;  // by symbol; the last one is no symbol, but the border of words
  std::array<PairRanks::Code, 256> byte_codes_;
  HugeVector<uint32_t> byte_pairs_;  // by first byte << 8 | second: rank << kPlaceBits
};

}  // namespace stator::tokenizer
