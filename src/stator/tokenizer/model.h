// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/bpe_model.h"
#include "stator/tokenizer/unigram_model.h"
#include "stator/tokenizer/vocabulary_entries.h"
#include "stator/tokenizer/wordlevel_model.h"
#include "stator/tokenizer/wordpiece_model.h"

namespace stator::tokenizer {

/// What turns pieces into ids. All alternatives are immutable and thread-safe.
using Model = std::variant<BpeModel, UnigramModel, WordPieceModel, WordLevelModel>;

/// What a model is made from.
using ModelSpec = std::variant<BpeSpec, UnigramSpec, WordPieceSpec, WordLevelSpec>;

inline const VocabularyEntries& vocabulary_of(const ModelSpec& spec) {
  return std::visit([](const auto& s) -> const VocabularyEntries& { return s.vocab; }, spec);
}

/// Id of a vocabulary entry by its spelling in the file.
inline std::optional<TokenId> find_token(const Model& model, std::string_view token_text) {
  return std::visit([&](const auto& m) { return m.find(token_text); }, model);
}

}  // namespace stator::tokenizer
