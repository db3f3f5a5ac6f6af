// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/vocabulary_entries.h"

namespace stator::tokenizer {

/// The "model" of a tokenizer.json of type WordPiece. The views must live until the model is made.
struct WordPieceSpec {
  VocabularyEntries vocab;
  std::string_view unk_token;
  std::string_view continuing_subword_prefix = "##";  ///< before every part but the first
  size_t max_word_chars = 100;                        ///< longer words are unknown
};

/// BERT's greedy longest match from the left; a word with any part outside the vocabulary is one
/// unknown token. O(length of the word × length of the longest entry). Immutable and thread-safe.
class WordPieceModel {
 public:
  static WordPieceModel create(const WordPieceSpec& spec);

  /// Appends the ids of one word, valid UTF-8. kInvalidArgument: the word is unknown and the
  /// vocabulary has no unknown token.
  Status encode(std::string_view word, std::vector<TokenId>& out) const;

  /// Id of a vocabulary entry by its spelling in the file.
  std::optional<TokenId> find(std::string_view token_text) const;

 private:
  /// Entries of the vocabulary of one position, and the most bytes that one of them has.
  struct Parts {
    FlatMap<std::string, TokenId> ids;
    size_t bytes_max = 0;
    void add(std::string_view text, TokenId id);
  };
  struct Match {
    TokenId id;
    size_t end;
  };

  WordPieceModel() = default;
  std::optional<Match> longest_at(std::string_view word, size_t at) const;
  Status append_unknown(std::vector<TokenId>& out) const;

  Parts whole_;       // spelled as in the file; also the first parts of words
  Parts continuing_;  // spelled without the prefix
  std::string unk_token_;
  std::optional<TokenId> unk_;
  size_t max_word_chars_ = 0;
};

}  // namespace stator::tokenizer
