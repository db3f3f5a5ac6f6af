// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/ids.h"

namespace stator::request {

/// What a choice's next attempt starts from, its prompt and what it has of the output, as a router
/// sees it. A view: no token is copied; hashes are only where the output completed blocks. What it
/// was made from outlives it.
class PromptView {
 public:
  struct Parts {
    std::span<const TokenId> prompt;
    std::span<const blocks::SequenceHash> sequences;  ///< of the prompt's full blocks
    std::span<const TokenId> output;
    uint32_t block_size = 16;
    uint64_t seed = 0;  ///< of the hashes
  };
  explicit PromptView(const Parts& parts);

  uint32_t tokens() const { return tokens_; }
  /// Of all full blocks.
  std::span<const blocks::SequenceHash> sequences() const {
    return grown_.empty() ? known_ : std::span<const blocks::SequenceHash>(grown_);
  }
  /// Of those that an engine need not compute: whatever it has cached, it computes the last token,
  /// and so the block that token is in.
  std::span<const blocks::SequenceHash> useful() const;

 private:
  uint32_t tokens_;
  uint32_t block_size_;
  std::span<const blocks::SequenceHash> known_;
  std::vector<blocks::SequenceHash> grown_;  // empty: `known_` are all
};

}  // namespace stator::request
