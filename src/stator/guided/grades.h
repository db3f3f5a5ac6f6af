// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/guided/vocabulary.h"

namespace stator::guided {

/// Tokens by how many bytes a text still needs behind them: few different numbers, of which some
/// have most of the vocabulary and most have a handful of tokens. A token may have several: the
/// least counts.
class Grades {
 public:
  // While it is made.
  void add(TokenId token, uint32_t need) { level(need).few.push_back(token); }
  void add(std::span<const TokenId> tokens, uint32_t need);
  /// Those of `tokens` that are not in `but`.
  void add(const TokenSet& tokens, const TokenSet& but, uint32_t need);
  /// For a vocabulary of `tokens`: nothing is added any more.
  void finish(size_t tokens);

  bool empty() const { return levels_.empty() && few_.empty(); }
  /// The largest number; 0 if there is no token.
  uint32_t need_max() const { return need_max_; }
  /// Adds those that need at most `need` bytes.
  void add_within(uint32_t need, TokenSet& out) const;
  size_t bytes() const;

 private:
  struct Level {
    uint32_t need = 0;
    TokenSet many;  // empty: none
    std::vector<TokenId> few;
  };
  Level& level(uint32_t need);

  std::vector<Level> levels_;                      // ascending; when finished, `few` is empty
  std::vector<std::pair<uint32_t, TokenId>> few_;  // of levels of few tokens, ascending
  size_t last_ = 0;                                // the level that was used last
  uint32_t need_max_ = 0;
};

}  // namespace stator::guided
