// SPDX-License-Identifier: Apache-2.0
#include "stator/blocks/block_hash.h"

#include <algorithm>
#include <bit>

#include "stator/core/assert.h"
#include "stator/core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace stator::blocks {
namespace {

// Dynamo's constant; part of the wire-visible identity.
constexpr uint64_t kBaseSeed = 1337;

static_assert(
    std::endian::native == std::endian::little,
    "block hashes are defined over little-endian tokens; add byte swaps for this machine");

}  // namespace

uint64_t hash_seed(std::string_view lora_name, std::string_view cache_salt) {
  uint64_t seed = kBaseSeed;
  if (!lora_name.empty()) {
    seed += xxh3_64(lora_name, 0);
  }
  if (!cache_salt.empty()) {
    seed += xxh3_64(cache_salt, 1);
  }
  return seed;
}

LocalHash hash_block(std::span<const TokenId> tokens, uint64_t seed,
                     std::span<const uint64_t> multimodal_hashes) {
  if (multimodal_hashes.empty()) {
    return LocalHash(xxh3_64(std::as_bytes(tokens), seed));
  }
  std::vector<uint64_t> sorted(multimodal_hashes.begin(), multimodal_hashes.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::byte> bytes;
  const auto token_bytes = std::as_bytes(tokens);
  bytes.assign(token_bytes.begin(), token_bytes.end());
  const auto media_bytes = std::as_bytes(std::span<const uint64_t>(sorted));
  bytes.insert(bytes.end(), media_bytes.begin(), media_bytes.end());
  return LocalHash(xxh3_64(bytes, seed));
}

SequenceHash chain(LocalHash first) {
  return SequenceHash(first.value());
}

/// xxh3_64() with a length and a seed that the compiler knows: links are hashed by the million.
[[gnu::flatten]] SequenceHash chain(SequenceHash parent, LocalHash local) {
  const uint64_t link[2] = {parent.value(), local.value()};
  return SequenceHash(XXH3_64bits_withSeed(link, sizeof(link), kBaseSeed));
}

void extend_sequences(std::span<const TokenId> tokens, uint32_t block_size, uint64_t seed,
                      std::vector<SequenceHash>& sequences) {
  STATOR_ASSERT(block_size > 0, "a block has at least one token");
  const size_t blocks = tokens.size() / block_size;
  sequences.reserve(blocks);
  while (sequences.size() < blocks) {
    const LocalHash local =
        hash_block(tokens.subspan(sequences.size() * block_size, block_size), seed);
    sequences.push_back(sequences.empty() ? chain(local) : chain(sequences.back(), local));
  }
}

BlockHasher::BlockHasher(uint32_t block_size, uint64_t seed)
    : block_size_(block_size), seed_(seed) {
  STATOR_ASSERT(block_size > 0, "a block has at least one token");
}

void BlockHasher::append(TokenId token) {
  append(std::span<const TokenId>(&token, 1));
}

void BlockHasher::append(std::span<const TokenId> tokens) {
  if (!partial_.empty()) {
    const size_t missing = std::min<size_t>(block_size_ - partial_.size(), tokens.size());
    partial_.insert(partial_.end(), tokens.begin(),
                    tokens.begin() + static_cast<ptrdiff_t>(missing));
    tokens = tokens.subspan(missing);
    if (partial_.size() < block_size_) {
      return;
    }
    close_block(partial_);
    partial_.clear();
  }
  for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    close_block(tokens.first(block_size_));
  }
  partial_.assign(tokens.begin(), tokens.end());
}

void BlockHasher::close_block(std::span<const TokenId> tokens) {
  const LocalHash local = hash_block(tokens, seed_);
  sequences_.push_back(sequences_.empty() ? chain(local) : chain(sequences_.back(), local));
  locals_.push_back(local);
}

}  // namespace stator::blocks
