// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/kv/block_identity.h"

namespace stator::kv {

/// A sequence of tokens with its blocks, as an engine has it.
class TestSequence {
 public:
  explicit TestSequence(uint32_t block_size, std::vector<TokenId> tokens,
                        const std::string& cache_salt = "")
      : tokens_(std::move(tokens)),
        owner_(block_owner("", cache_salt)),
        hasher_(block_size, blocks::hash_seed("", cache_salt)) {
    hasher_.append(tokens_);
    sequences_.assign(hasher_.sequences().begin(), hasher_.sequences().end());
    locals_.assign(hasher_.locals().begin(), hasher_.locals().end());
  }

  SequenceBlocks blocks() const {
    return {.sequences = sequences_,
            .locals = locals_,
            .tokens = tokens_,
            .block_size = hasher_.block_size(),
            .owner = owner_};
  }
  BlockIdentity operator[](size_t index) const { return blocks()[index]; }
  size_t size() const { return sequences_.size(); }

  /// Its blocks have the names of the other's from now on, as if the hashes collided.
  void forge_names(const TestSequence& other) {
    sequences_ = other.sequences_;
    locals_ = other.locals_;
  }

 private:
  std::vector<TokenId> tokens_;
  std::string owner_;
  blocks::BlockHasher hasher_;
  std::vector<blocks::SequenceHash> sequences_;
  std::vector<blocks::LocalHash> locals_;
};

}  // namespace stator::kv
