// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/strong_id.h"

namespace stator::blocks {

// Identity of KV blocks. A block is `block_size` consecutive tokens of one sequence; only full
// blocks have an identity. The scheme is byte-compatible with NVIDIA Dynamo's router, so that its
// event publishers and ours can feed the same index.

/// Content of one block, no history: XXH3-64 of its tokens as little-endian u32, seeded by the
/// salt.
using LocalHash = StrongId<struct LocalHashTag, uint64_t>;
/// Content of a block and of everything before it: chained LocalHashes.
using SequenceHash = StrongId<struct SequenceHashTag, uint64_t>;
/// An engine's own block id: opaque, but prefix-cumulative. Our engines use the SequenceHash value.
using ExternalHash = StrongId<struct ExternalHashTag, uint64_t>;

/// Seed that separates adapters and tenants: equal tokens under another LoRA or cache salt are
/// another block. Empty means absent.
uint64_t hash_seed(std::string_view lora_name, std::string_view cache_salt);

/// Hash of exactly one block's tokens. `multimodal_hashes` are the content hashes of the media that
/// overlap the block (any order).
LocalHash hash_block(std::span<const TokenId> tokens, uint64_t seed,
                     std::span<const uint64_t> multimodal_hashes = {});

/// First link: equal to the local hash.
SequenceHash chain(LocalHash first);
/// Next link of the chain.
SequenceHash chain(SequenceHash parent, LocalHash local);

/// Appends the hashes of the full blocks of `tokens` that `sequences` lacks. `sequences` are those
/// of the first blocks of the same tokens, same block size and seed: hashing goes on where it
/// ended.
void extend_sequences(std::span<const TokenId> tokens, uint32_t block_size, uint64_t seed,
                      std::vector<SequenceHash>& sequences);

/// Hashes of all full blocks of a growing token sequence. Appending costs the new tokens only.
///
///   BlockHasher hasher(16, hash_seed("", "tenant-a"));
///   hasher.append(prompt);            // hasher.locals().size() == prompt.size() / 16
///   hasher.append(next_token);
class BlockHasher {
 public:
  /// `block_size` in tokens, at least 1.
  BlockHasher(uint32_t block_size, uint64_t seed);

  void append(std::span<const TokenId> tokens);
  void append(TokenId token);

  std::span<const LocalHash> locals() const { return locals_; }
  std::span<const SequenceHash> sequences() const { return sequences_; }
  uint32_t block_size() const { return block_size_; }

 private:
  void close_block(std::span<const TokenId> tokens);

  uint32_t block_size_;
  uint64_t seed_;
  std::vector<TokenId> partial_;  // fewer than block_size_ tokens
  std::vector<LocalHash> locals_;
  std::vector<SequenceHash> sequences_;
};

}  // namespace stator::blocks
