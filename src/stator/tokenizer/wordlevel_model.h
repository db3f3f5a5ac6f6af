// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/text_ids.h"
#include "stator/tokenizer/vocabulary_entries.h"

namespace stator::tokenizer {

/// The "model" of a tokenizer.json of type WordLevel. The views must live until the model is made.
struct WordLevelSpec {
  VocabularyEntries vocab;
  std::string_view unk_token;
};

/// One token per piece: its id in the vocabulary, or the unknown token. Immutable and thread-safe.
class WordLevelModel {
 public:
  static WordLevelModel create(const WordLevelSpec& spec);

  /// Appends the id of one piece. kInvalidArgument: the piece is unknown and the vocabulary has no
  /// unknown token.
  Status encode(std::string_view piece, std::vector<TokenId>& out) const;

  /// Id of a vocabulary entry by its spelling in the file.
  std::optional<TokenId> find(std::string_view token_text) const;

 private:
  WordLevelModel() = default;
  TextIds ids_;
  std::string unk_token_;
  std::optional<TokenId> unk_;
};

}  // namespace stator::tokenizer
