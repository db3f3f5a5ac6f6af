// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"
#include "stator/tokenizer/detail/file_formats.h"
#include "stator/tokenizer/detail/sentencepiece_vocabulary.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace stator::tokenizer {
namespace {

using Piece = SentencePieceVocabulary::Piece;
using Type = SentencePieceVocabulary::PieceType;

Error malformed() {
  return Error(Code::kCorrupt, "the SentencePiece model is truncated or no such file");
}

/// One field of a protocol buffer.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;           // of a number, or the bits of a float
  std::string_view bytes = {};  // of a string or message
};

/// Takes fields off the front of a message.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }

  Result<Field> next() {
    STATOR_TRY(const uint64_t key, varint());
    Field field{.number = static_cast<uint32_t>(key >> 3)};
    switch (key & 7) {
      case 0: {
        STATOR_TRY(field.value, varint());
        return field;
      }
      case 2: {
        STATOR_TRY(const uint64_t size, varint());
        STATOR_TRY(field.bytes, take(size));
        return field;
      }
      case 1:
      case 5: {
        STATOR_TRY(const std::string_view bytes, take((key & 7) == 1 ? 8 : 4));
        std::memcpy(&field.value, bytes.data(), bytes.size());
        return field;
      }
      default:
        return malformed();
    }
  }

 private:
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    return malformed();
  }

  Result<std::string_view> take(uint64_t size) {
    if (size > rest_.size()) {
      return malformed();
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

Result<Piece> read_piece(std::string_view bytes) {
  Piece piece{"", 0, Type::kNormal};
  for (Message message(bytes); !message.at_end();) {
    STATOR_TRY(const Field field, message.next());
    if (field.number == 1) {
      piece.text = field.bytes;
    } else if (field.number == 2) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    } else if (field.number == 3) {
      piece.type = static_cast<Type>(field.value);
    }
  }
  return piece;
}

/// How the model was trained tells its kind.
Status read_trainer(std::string_view bytes, SentencePieceVocabulary& vocabulary) {
  constexpr uint32_t kModelType = 3;
  constexpr uint32_t kSpaceIsSuffix = 24;
  constexpr uint64_t kUnigram = 1;
  constexpr uint64_t kBpe = 2;
  uint64_t model_type = kUnigram;
  for (Message message(bytes); !message.at_end();) {
    STATOR_TRY(const Field field, message.next());
    if (field.number == kModelType) {
      model_type = field.value;
    } else if (field.number == kSpaceIsSuffix && field.value != 0) {
      return Error(Code::kUnsupported,
                   "the SentencePiece model treats white space as suffix; use its tokenizer.json");
    }
  }
  if (model_type != kUnigram && model_type != kBpe) {
    return Error(Code::kUnsupported,
                 fmt::format("the SentencePiece model has the type {}, which is neither unigram "
                             "nor BPE",
                             model_type));
  }
  vocabulary.is_bpe = model_type == kBpe;
  return {};
}

Status read_normalizer(std::string_view bytes, SentencePieceVocabulary& vocabulary) {
  for (Message message(bytes); !message.at_end();) {
    STATOR_TRY(const Field field, message.next());
    if (field.number == 2) {
      vocabulary.charsmap = field.bytes;
    } else if (field.number == 3) {
      vocabulary.adds_prefix = field.value != 0;
    } else if (field.number == 4) {
      vocabulary.collapses_spaces = field.value != 0;
    }
  }
  return {};
}

}  // namespace

PipelineResult load_sentencepiece(std::string_view file) {
  SentencePieceVocabulary vocabulary;
  vocabulary.is_bpe = false;
  vocabulary.collapses_spaces = true;  // the format's default
  vocabulary.is_model_file = true;
  for (Message message(file); !message.at_end();) {
    STATOR_TRY(const Field field, message.next());
    if (field.number == 1) {
      STATOR_TRY(const Piece piece, read_piece(field.bytes));
      vocabulary.pieces.push_back(piece);
    } else if (field.number == 2) {
      STATOR_CHECK(read_trainer(field.bytes, vocabulary));
    } else if (field.number == 3) {
      STATOR_CHECK(read_normalizer(field.bytes, vocabulary));
    }
  }
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    if (vocabulary.pieces[id].type == Type::kControl && vocabulary.pieces[id].text == "<s>") {
      vocabulary.before = {static_cast<TokenId>(id)};
    }
  }
  vocabulary.fingerprint = xxh3_64(file);
  return make_pipeline(vocabulary);
}

}  // namespace stator::tokenizer
