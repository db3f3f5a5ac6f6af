// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/byte_trie.h"
#include "stator/tokenizer/tokenizer.h"
#include "stator/tokenizer/vocabulary_entries.h"

namespace stator::tokenizer {

/// The "model" of a tokenizer.json of type Unigram. The views must live until the model is made.
struct UnigramSpec {
  VocabularyEntries vocab;
  std::vector<double> scores;  ///< log probabilities, of vocab[i]
  std::optional<TokenId> unk;
  std::optional<double> unk_score;  ///< of an unknown character; if absent, the least score less 10
  bool byte_fallback = false;       ///< stretches of unknown characters become "<0xNN>" tokens
  std::vector<TokenId> absent;      ///< entries that stand for no text: control tokens
  /// SentencePiece's own arithmetic, where `tokenizers` differs from it: totals are kept in single
  /// precision, which decides between ways of equal score, and a stretch of unknown characters that
  /// spells an entry ("<s>") is unknown all the same.
  bool is_sentencepiece = false;
};

/// Working memory of one thread; reused between pieces. 16 bytes per byte of the longest piece.
struct UnigramScratch {
  struct Best {
    double score;    // of the best way to the end of this byte
    uint32_t begin;  // of its last token
    TokenId id;
  };
  std::vector<Best> best;
  EncodeStop stop;  // of the call
};

/// SentencePiece's unigram language model: the segmentation of greatest total score (Viterbi), the
/// one with the earlier start on ties. Stretches of characters outside the vocabulary are one
/// unknown token. O(length × longest entry). Immutable and
/// thread-safe.
class UnigramModel {
 public:
  /// kCorrupt: a score is not finite.
  static Result<UnigramModel> create(const UnigramSpec& spec);

  /// Appends the ids of one non-empty piece of valid UTF-8. kInvalidArgument: the piece has an
  /// unknown character and the vocabulary no unknown token.
  Status encode(std::string_view piece, UnigramScratch& scratch, std::vector<TokenId>& out) const;

  /// Id of a vocabulary entry by its spelling in the file.
  std::optional<TokenId> find(std::string_view token_text) const;

 private:
  static constexpr TokenId kNone = UINT32_MAX;
  static constexpr double kAbsent = -std::numeric_limits<double>::infinity();

  UnigramModel() = default;
  Status find_best(std::string_view piece, UnigramScratch& scratch) const;
  void append_unknown(std::string_view stretch, std::vector<TokenId>& out) const;

  ByteTrie trie_;
  std::vector<double> scores_;  // by id; kAbsent: stands for no text
  double unk_score_ = 0;
  TokenId unk_ = kNone;
  bool byte_fallback_ = false;
  bool is_sentencepiece_ = false;
  std::array<TokenId, 256> fallback_ids_{};  // "<0xNN>"; kNone where there is none
};

}  // namespace stator::tokenizer
