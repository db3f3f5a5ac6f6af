// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/cancel_token.h"
#include "stator/core/ids.h"
#include "stator/tokenizer/token_pairs.h"
#include "stator/tokenizer/token_trie.h"
#include "stator/tokenizer/word_merger.h"

namespace stator::tokenizer {

/// Working memory of one thread for ByteBpe.
struct ByteBpeScratch {
  /// Answers of TokenPairs::may_touch for recent pairs of one ByteBpe: 128 KiB, direct-mapped.
  static constexpr size_t kAnswers = 16384;
  std::vector<uint64_t> answers;  // pair << 1 | may touch
  uint64_t answers_owner = 0;     // whose they are: ByteBpe::serial_
  std::vector<TokenId> tokens;
  std::vector<uint64_t> dead;           // bit per position
  uint64_t steps = 0;                   // counts work: tokens tried
  const CancelToken* cancel = nullptr;  // of the call; may be null
};

/// Byte-pair encoding of words: short ones by merging (WordMerger), long ones without: takes the
/// longest token at each position that may stand next to the one before (TokenPairs) and goes back
/// where that leads nowhere. The result is unique, so it is what merging gives. A position is left
/// for good at most once: O(n) tokens are tried times the number of tokens that are prefixes of
/// each other; usually as many as the result has. Immutable and thread-safe.
class ByteBpe {
 public:
  /// Every byte alone must be among the formed tokens of `pairs`; `entries` are (bytes, token) of
  /// all formed tokens, whose bytes must outlive this. Nothing if WordMerger cannot take the
  /// merges.
  static std::optional<ByteBpe> create(TokenPairs pairs, std::span<const TokenId, 256> single_bytes,
                                       std::vector<TokenTrie::Entry> entries);

  bool is_formed(TokenId token) const { return pairs_.is_formed(token); }

  /// Appends the ids of one non-empty word.
  void encode(std::string_view word, ByteBpeScratch& scratch, std::vector<TokenId>& out) const;

  /// The same for several words of up to WordMerger::kBytesMax bytes at once.
  void encode_short(std::span<WordToEncode> words) const { merger_.encode(words); }

  /// Makes what only longer words need, unless one has come already. A fifth of the time that a
  /// large vocabulary takes to load, and few texts have such words. Any thread.
  void prepare_long_words() const { (void)long_words(); }

 private:
  ByteBpe(TokenPairs pairs, WordMerger merger, std::vector<TokenTrie::Entry> entries);

  static constexpr TokenId kNone = UINT32_MAX;

  struct Token {
    TokenId shorter = kNone;  // the longest token that is a proper prefix
    uint32_t bytes = 0;
  };

  /// Made at the first long word.
  struct LongWords {
    std::once_flag once;
    std::vector<TokenTrie::Entry> entries;  // what they are made from; empty then
    TokenTrie trie;
    HugeVector<Token> tokens;  // by id
  };
  const LongWords& long_words() const;

  struct Work {
    TokenId* tokens;  // room for one per byte of the word
    uint64_t* dead;   // bit per position: no result passes there
  };
  size_t fill(std::string_view word, Work work, ByteBpeScratch& scratch) const;
  bool may_touch(TokenId left, TokenId right, ByteBpeScratch& scratch) const;

  TokenPairs pairs_;
  WordMerger merger_;
  std::unique_ptr<LongWords> long_words_;
  uint64_t serial_;  // unique in the process
};

}  // namespace stator::tokenizer
