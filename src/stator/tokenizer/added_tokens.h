// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

/// One entry of "added_tokens": text that becomes one token wherever it stands.
struct AddedToken {
  TokenId id = 0;
  std::string content;       ///< not empty
  bool single_word = false;  ///< only between non-word characters
  bool lstrip = false;       ///< swallows the white space before it
  bool rstrip = false;       ///< and after it
  bool normalized = false;   ///< looked for in normalized text (and normalized itself)
  bool special = false;
};

/// Added tokens longer than this are refused: matching costs at most their length per byte of text.
inline constexpr size_t kAddedTokenBytesMax = 4096;

/// A stretch of text: either one added token or text for the rest of the pipeline.
struct Section {
  std::string_view text;
  TokenId id = 0;
  bool is_token = false;
  bool is_start = false;  ///< begins where the text does
};

/// Finds added tokens, leftmost and then longest, without overlaps: a byte trie walked from every
/// position whose byte starts a token (most texts have few of those). Immutable.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  /// Of equal contents the last wins.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

  /// Cuts valid UTF-8 `text` into sections, in order, text sections not empty. With kAsText special
  /// tokens are text. Clears `sections` first.
  void split(std::string_view text, SpecialTokens special, std::vector<Section>& sections) const;

 private:
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };
  struct Node {
    std::vector<Edge> edges;
    int32_t token = -1;  // index into tokens_
  };
  struct Match {
    int32_t token;  // -1: none
    size_t bytes;
  };

  void add_to_trie(int32_t index);
  bool may_start(std::string_view text, size_t at) const;
  size_t find_start(std::string_view text, size_t from) const;
  Match longest_at(std::string_view text, size_t at) const;
  bool accepts(const AddedToken& token, std::string_view text, size_t begin,
               SpecialTokens special) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  static size_t pair_of(char first, char second) {
    return static_cast<size_t>(static_cast<unsigned char>(first)) << 8 |
           static_cast<unsigned char>(second);
  }
  std::array<bool, 256> starts_{};
  std::string start_bytes_;  // the same as a list
  std::vector<bool> pairs_;  // first two bytes that tokens start with: 8 KiB; empty without tokens
};

}  // namespace stator::tokenizer
