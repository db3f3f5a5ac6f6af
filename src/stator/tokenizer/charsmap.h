// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::tokenizer {

/// SentencePiece's "precompiled charsmap": replacements of characters and short character
/// sequences, found through a double-array trie. Applied as the reference does it: a grapheme of
/// fewer than 6 bytes by the shortest entry that starts it (what follows in the grapheme is lost),
/// otherwise character by character. Immutable; copies share the tables.
class Charsmap {
 public:
  /// From the decoded bytes: size of the trie, the trie, the replacements. kCorrupt: truncated or
  /// not UTF-8.
  static Result<Charsmap> parse(std::string_view bytes);

  /// Appends `text` (valid UTF-8) with replacements; stops soon after `out` has more than
  /// `bytes_max`.
  void append_mapped(std::string_view text, size_t bytes_max, std::string& out) const;

  struct Match {
    std::string_view replacement;
    size_t bytes;  ///< of the text that it replaces
  };
  /// The longest entry at `text[at]`, as SentencePiece itself looks for it.
  std::optional<Match> longest_at(std::string_view text, size_t at) const;

 private:
  enum class Want : uint8_t { kShortest, kLongest };
  struct Tables {
    std::vector<uint32_t> trie;
    std::string replacements;  // each ends with NUL
  };
  std::optional<Match> find(std::string_view chunk, Want want) const;
  std::optional<std::string_view> replacement_at(size_t node) const;
  void append_grapheme(std::string_view grapheme, std::string& out) const;

  std::shared_ptr<const Tables> tables_;
};

}  // namespace stator::tokenizer
