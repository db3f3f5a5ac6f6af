// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"
#include "stator/tokenizer/merge_table.h"

namespace stator::tokenizer {

/// Which two tokens may stand next to each other in the byte-pair encoding of a text.
///
/// Merging restricted to a stretch of tokens of the result is merging of that stretch alone. Hence
/// a token can only appear if the encoding of its own bytes is itself ("formed"), by one last merge
/// that is always the same; and a row of formed tokens is the encoding of its text exactly if every
/// two neighbours are the encoding of theirs. The latter is decided by undoing the merges of both
/// tokens, latest first, and looking whether a merge across the border would have come before.
///
/// That holds where a token's merges come in the order of their ranks. Published vocabularies have
/// at most a hundred tokens for which it does not ("irregular"); theirs are replayed.
/// Immutable. 12 bytes per token, 16 per formed token.
class TokenPairs {
 public:
  struct Merge {
    TokenId left;
    TokenId right;
    MergeRule rule;
  };
  using Entry = std::pair<std::string_view, TokenId>;

  /// What the pairs are made from.
  struct Vocabulary {
    std::span<const Entry> entries;       ///< (bytes, token); tokens are below kTokensMax
    std::span<const TokenId, 256> bytes;  ///< the tokens that merging starts from
    std::span<const Merge> merges;        ///< in order of rank; equal ranks make one token
    const MergeTable& table;              ///< the same merges
  };

  /// Empty for what no published vocabulary has: a rank from kRanksMax on, a merge that makes a
  /// single byte, or merges of equal rank that make different tokens.
  static std::optional<TokenPairs> create(const Vocabulary& vocabulary);

  static constexpr size_t kTokensMax = (size_t{1} << 21) - 1;
  static constexpr size_t kRanksMax = (size_t{1} << 20) - 2;

  /// Whether the encoding of the token's own bytes is the token.
  bool is_formed(TokenId token) const { return formations_[token].rank != kUnformed; }

  /// Whether the encoding of the bytes of both is `left`, `right`. Both are formed.
  bool may_touch(TokenId left, TokenId right) const;

  /// The last merges of all formed tokens but single bytes, in order of rank: no other merge
  /// happens in any text.
  std::vector<Merge> list_merges() const;

 private:
  static constexpr uint32_t kUnformed = UINT32_MAX;
  static constexpr uint32_t kByteRank = 0;  // those of merges count from 1 here
  static constexpr uint32_t kIrregular = 1U << 31;
  static constexpr int kTokenBits = 22;
  static constexpr int kRankBits = 20;
  static constexpr uint32_t kNoPair = (1U << kRankBits) - 1;
  static constexpr uint64_t kEmptySlot = UINT64_MAX;

  /// The last merge that makes a token.
  struct Formation {
    TokenId left = 0;
    TokenId right = 0;
    uint32_t rank = kUnformed;  // | kIrregular
  };

  explicit TokenPairs(const Vocabulary& vocabulary);
  void form_regular(const Vocabulary& vocabulary);
  void form_irregular(const Vocabulary& vocabulary);
  void insert(TokenId left, TokenId right, uint32_t rank);
  uint32_t rank_of(TokenId left, TokenId right) const;
  bool may_touch_replayed(TokenId left, TokenId right) const;
  void append_bytes(TokenId token, std::vector<TokenId>& out) const;
  static uint64_t hash_of(TokenId left, TokenId right) {
    return ((static_cast<uint64_t>(left) << kTokenBits) | right) * 0x9E3779B97F4A7C15ULL;
  }
  /// Two bits of a word of the filter.
  static uint64_t filter_bits(uint64_t hash) {
    return uint64_t{1} << (hash >> 20 & 63) | uint64_t{1} << (hash >> 26 & 63);
  }

  HugeVector<Formation> formations_;  // by token
  HugeVector<uint64_t> slots_;        // open addressing: pair << kRankBits | rank
  int shift_ = 63;
  HugeVector<uint64_t> filter_;  // most pairs asked for do not merge: one byte per pair tells
  int filter_shift_ = 63;
  std::vector<TokenId> merged_;  // by rank; only if there are irregular tokens
};

}  // namespace stator::tokenizer
