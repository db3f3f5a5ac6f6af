// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/storage/block_name.h"

namespace stator::storage {

/// A sequence of blocks with names and bytes, as an engine would have it.
struct TestSequence {
  static constexpr uint32_t kBlockTokens = 16;

  TestSequence(size_t blocks, TokenId first, const Digest& space, std::string owner_in = {})
      : owner(std::move(owner_in)), hasher(kBlockTokens, blocks::hash_seed("", owner)) {
    tokens.resize(blocks * kBlockTokens);
    std::iota(tokens.begin(), tokens.end(), first);
    hasher.append(tokens);
    names = name_blocks(space, {.sequences = hasher.sequences(),
                                .locals = hasher.locals(),
                                .tokens = tokens,
                                .block_size = kBlockTokens,
                                .owner = owner});
  }
  std::span<const TokenId> tokens_of(size_t block) const {
    return std::span(tokens).subspan(block * kBlockTokens, kBlockTokens);
  }
  kv::LineageHash parent(size_t block) const {
    return block == 0 ? kv::LineageHash() : names[block - 1].lineage;
  }
  /// Bytes that no other block has.
  std::vector<std::byte> payload(size_t block, size_t bytes) const {
    std::vector<std::byte> out(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      out[i] = static_cast<std::byte>(tokens[block * kBlockTokens] * 31 + i * 7 + i / 256);
    }
    return out;
  }

  std::string owner;
  blocks::BlockHasher hasher;
  std::vector<TokenId> tokens;
  std::vector<BlockName> names;
};

inline Digest test_space(std::string model = "test") {
  return namespace_of({.model = std::move(model), .dtype = "f32", .block_tokens = 16});
}

}  // namespace stator::storage
