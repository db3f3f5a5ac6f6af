// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"

namespace stator::guided {

/// One bit per token id.
class TokenSet {
 public:
  explicit TokenSet(size_t tokens = 0) : words_((tokens + 63) / 64) {}
  void set(TokenId token) { words_[token / 64] |= uint64_t{1} << (token % 64); }
  void reset(TokenId token) { words_[token / 64] &= ~(uint64_t{1} << (token % 64)); }
  bool test(TokenId token) const {
    return token / 64 < words_.size() && (words_[token / 64] >> (token % 64) & 1) != 0;
  }
  TokenSet& operator|=(const TokenSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) {
      words_[i] |= other.words_[i];
    }
    return *this;
  }
  void remove(const TokenSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) {
      words_[i] &= ~other.words_[i];
    }
  }
  size_t count() const;
  bool none() const;
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }
  std::span<const uint64_t> words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

/// Bytes fall into 64 groups, so that a set of bytes that keeps groups together is one word.
uint32_t byte_group(uint8_t byte);

/// Tokens as a tree of their bytes, its nodes in depth-first order: the subtree of node i is
/// [i + 1, nodes[i].end).
class TokenTrie {
 public:
  struct Node {
    uint32_t end = 0;
    uint32_t first_token = 0;  ///< into tokens()
    uint16_t token_count = 0;  ///< tokens that are these bytes
    uint16_t depth = 0;        ///< bytes from the root, from 1
    uint8_t byte = 0;
  };
  struct Entry {
    std::string_view bytes;
    TokenId token;
  };
  /// Entries without bytes are left out.
  explicit TokenTrie(std::vector<Entry> entries);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const TokenId> tokens_at(const Node& node) const {
    return std::span(tokens_).subspan(node.first_token, node.token_count);
  }
  /// Tokens of a node and of its whole subtree.
  std::span<const TokenId> tokens_below(uint32_t index) const {
    const uint32_t first = nodes_[index].first_token;
    const uint32_t end = nodes_[index].end;
    const size_t last = end < nodes_.size() ? nodes_[end].first_token : tokens_.size();
    return std::span(tokens_).subspan(first, last - first);
  }
  /// Groups of the bytes below a node, itself not included: a bit each.
  uint64_t groups_below(uint32_t index) const { return groups_below_[index]; }
  uint16_t depth_max() const { return depth_max_; }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
  std::vector<uint64_t> groups_below_;  // by node
  uint16_t depth_max_ = 0;
};

/// The tokens of a model as bytes, in the shapes masks are computed from. Immutable; about 30 bytes
/// per token beside the text. Built in some 50 ms for 150,000 tokens.
///
/// Plain tokens are whole characters that mean nothing in a JSON string: no quote, backslash or
/// control character. Most tokens are; where any such text may go on they are allowed in one go.
class Vocabulary {
 public:
  struct Token {
    std::string_view bytes;  ///< empty: the token is no text
    bool special = false;    ///< never text, but grammars can name it
  };
  /// `token_at` is called with every id below `size`; its views need to live for the call only.
  Vocabulary(uint32_t size, const std::function<Token(TokenId)>& token_at);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(spans_.size()); }
  /// Empty for a token that is no text.
  std::string_view bytes(TokenId token) const {
    if (token >= spans_.size()) {
      return {};
    }
    const auto [offset, length] = spans_[token];
    return std::string_view(text_).substr(offset, length);
  }
  std::optional<TokenId> find_special(std::string_view text) const;
  /// The token, special or not, that is all of `text`.
  std::optional<TokenId> find_token(std::string_view text) const;

  const TokenTrie& all() const { return *all_; }
  /// Tokens that are not plain.
  const TokenTrie& marked() const { return *marked_; }
  /// Plain tokens of at most `characters`: all of them from kCharactersMax.
  const TokenSet& plain_up_to(uint32_t characters) const;
  /// The other plain tokens.
  std::span<const TokenId> plain_above(uint32_t characters) const;
  static constexpr uint32_t kCharactersMax = 32;

 private:
  std::string text_;
  std::vector<std::pair<uint32_t, uint32_t>> spans_;  // offset and length in text_
  FlatMap<std::string, TokenId> specials_;
  std::optional<TokenTrie> all_;
  std::optional<TokenTrie> marked_;
  std::vector<TokenSet> plain_;           // by characters, cumulative
  std::vector<TokenId> plain_by_length_;  // ascending
  std::vector<uint32_t> plain_ends_;      // by characters: how many have at most so many
};

}  // namespace stator::guided
