// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/detail/file_formats.h"

namespace stator::tokenizer {

/// What a SentencePiece model file says, and GGUF files made from one. Views the file.
struct SentencePieceVocabulary {
  /// The numbers of the file formats.
  enum class PieceType : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,      ///< not in texts: BOS, EOS, padding
    kUserDefined = 4,  ///< wherever it stands in a text
    kUnused = 5,
    kByte = 6,  ///< "<0xNN>", for characters without a piece
  };
  struct Piece {
    std::string_view text;
    float score;
    PieceType type;
  };
  std::vector<Piece> pieces;  ///< by id
  bool is_bpe = true;         ///< else a unigram language model
  std::string_view charsmap;  ///< empty: text stays as it is
  bool adds_prefix = true;
  bool collapses_spaces = false;
  /// SentencePiece's own file: its pieces count as its library counts them, and user-defined ones
  /// are found after normalizing; else before.
  bool is_model_file = false;
  std::vector<TokenId> before;  ///< ids that surround a text (BOS, EOS)
  std::vector<TokenId> after;
  uint64_t fingerprint = 0;
};

/// kCorrupt: a text or score is broken, or an id beyond the pieces.
PipelineResult make_pipeline(const SentencePieceVocabulary& vocabulary);

/// The added token that a control, unknown or user-defined piece is; nothing for others.
std::optional<AddedToken> as_added_token(const SentencePieceVocabulary::Piece& piece, TokenId id);

}  // namespace stator::tokenizer
