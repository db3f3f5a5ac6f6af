// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/regex.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

/// How vocabulary spellings become text. Every decoder we support maps each token to bytes that
/// depend on nothing but whether the token is the first or last one; what else depends on
/// neighbours is only `rules`. That makes decoding a table lookup.
struct Decoder {
  /// Characters of the byte alphabet to bytes; a token with any other character stands for itself.
  struct ByteLevel {};
  struct Replace {
    std::string pattern;  // not empty
    std::string content;
  };
  struct ReplaceMatches {
    Regex pattern;
    std::string content;
  };
  /// "<0xNN>" to that byte; the steps after it leave the byte alone.
  struct ByteFallback {};
  /// `replacement` to spaces; in the first token to nothing unless `keeps_first`.
  struct Metaspace {
    std::string replacement;
    bool keeps_first;
  };
  /// BERT: tokens are joined by spaces but for those that start with `prefix`.
  struct WordPiece {
    std::string prefix;
    bool cleanup;  ///< no space before punctuation and English contractions, within each token
  };
  /// `suffix` to a space; in the last token to nothing.
  struct EndOfWord {
    std::string suffix;
  };
  /// Speech recognition: without padding; with `cleanup` also `delimiter` to spaces.
  struct Ctc {
    std::string pad;
    std::string delimiter;
    bool cleanup;
  };
  /// `content` off the ends of each token, at most so many times.
  struct Strip {
    std::string content;  // one character
    uint32_t start;
    uint32_t stop;
  };
  using Step = std::variant<ByteLevel, Replace, ReplaceMatches, ByteFallback, Metaspace, WordPiece,
                            EndOfWord, Ctc, Strip>;

  std::vector<Step> steps;
  Tokenizer::DecodeRules rules;
};

/// The bytes that a token spelled `token_text` (valid UTF-8) stands for at `place`.
std::string decode_token(const Decoder& decoder, std::string_view token_text,
                         Tokenizer::TokenPlace place);

/// Bytes and flags of every token, by id: 8 bytes per id and the text.
class TokenTable {
 public:
  struct Entry {
    TokenId id;
    uint32_t begin;  ///< its bytes are there in the text of all
    uint32_t bytes;
    bool special;
  };
  enum Flag : uint32_t {
    kKnown = 1,
    kSpecial = 2,
    kComplete = 4,  ///< not empty and UTF-8 by itself
  };
  TokenTable() = default;
  /// Of equal ids the last entry wins. Ids are at most kMaxTokenId; all bytes are less than
  /// 512 MiB.
  TokenTable(std::string_view text, std::span<const Entry> entries);

  /// Flags; none for an id that is not in the table.
  uint32_t flags(TokenId id) const { return id < size() ? tokens_[id].bytes_and_flags & 7U : 0U; }
  std::string_view bytes(TokenId id) const {
    return id < size() ? std::string_view(bytes_.data() + tokens_[id].begin,
                                          tokens_[id].bytes_and_flags >> 3)
                       : std::string_view();
  }
  bool is_special(TokenId id) const { return (flags(id) & kSpecial) != 0; }
  bool is_known(TokenId id) const { return (flags(id) & kKnown) != 0; }
  /// One more than the largest id.
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }

 private:
  struct Token {
    uint32_t begin = 0;  // in bytes_
    uint32_t bytes_and_flags = 0;
  };
  std::string bytes_;
  std::vector<Token> tokens_;
};

/// The tables of all places; most decoders have one table for all.
class TokenTables {
 public:
  TokenTables() = default;
  struct Spelling {
    TokenId id;
    std::string_view text;
    bool special;
  };
  /// Of equal ids the last spelling wins.
  TokenTables(const Decoder& decoder, const std::vector<Spelling>& spellings);

  /// Of a token that is neither first nor last.
  const TokenTable& middle() const { return tables_[0]; }
  std::string_view bytes(TokenId id, Tokenizer::TokenPlace place) const {
    const size_t index = (place.is_first ? first_mask_ : 0U) | (place.is_last ? last_mask_ : 0U);
    return tables_[index].bytes(id);
  }

 private:
  static constexpr uint8_t kFirst = 1;
  static constexpr uint8_t kLast = 2;
  std::array<TokenTable, 4> tables_;  // by kFirst | kLast; unused ones are empty
  uint8_t first_mask_ = 0;            // kFirst if the decoder treats the first token apart
  uint8_t last_mask_ = 0;
};

}  // namespace stator::tokenizer
