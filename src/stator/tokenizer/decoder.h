// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

/// How vocabulary spellings become text. Every decoder we support maps each token by itself to
/// bytes; what depends on neighbours is only `rules`. That makes decoding a table lookup.
struct Decoder {
  /// Characters of the byte alphabet to bytes; a token with any other character stands for itself.
  struct ByteLevel {};
  struct Replace {
    std::string pattern;  // not empty
    std::string content;
  };
  /// "<0xNN>" to that byte; the steps after it leave the byte alone.
  struct ByteFallback {};
  using Step = std::variant<ByteLevel, Replace, ByteFallback>;

  std::vector<Step> steps;
  Tokenizer::DecodeRules rules;
};

/// The bytes that a token spelled `token_text` (valid UTF-8) stands for.
std::string decode_token(const Decoder& decoder, std::string_view token_text);

/// Bytes and flags of every token, by id: 5 bytes per id and the text.
class TokenTable {
 public:
  struct Entry {
    TokenId id;
    std::string bytes;
    bool special;
  };
  TokenTable() = default;
  /// Of equal ids the last entry wins. Ids are at most kMaxTokenId.
  explicit TokenTable(const std::vector<Entry>& entries);

  std::string_view bytes(TokenId id) const {
    return id < size()
               ? std::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id])
               : std::string_view();
  }
  bool is_special(TokenId id) const { return id < size() && (flags_[id] & kSpecial) != 0; }
  bool is_known(TokenId id) const { return id < size() && (flags_[id] & kKnown) != 0; }
  /// One more than the largest id.
  uint32_t size() const { return static_cast<uint32_t>(flags_.size()); }

 private:
  static constexpr uint8_t kKnown = 1;
  static constexpr uint8_t kSpecial = 2;
  std::string bytes_;
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<uint8_t> flags_;
};

}  // namespace stator::tokenizer
