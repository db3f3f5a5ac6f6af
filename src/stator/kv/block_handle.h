// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "stator/kv/block_id.h"
#include "stator/kv/block_identity.h"

namespace stator::kv {

class BlockPool;

/// One reference to one KV block: whoever holds it may rely on the block's bytes staying put, and
/// destroying it gives the reference back. So a request that ends early, fails or is cancelled
/// cannot leak memory: there is no "free" to forget.
///
/// Move-only; the pool outlives every handle; home thread: the pool's. An empty handle (made by
/// default, or moved from) owns nothing.
class [[nodiscard]] BlockHandle {
 public:
  BlockHandle() noexcept = default;
  BlockHandle(BlockHandle&& other) noexcept;
  BlockHandle& operator=(BlockHandle&& other) noexcept;
  BlockHandle(const BlockHandle&) = delete;
  BlockHandle& operator=(const BlockHandle&) = delete;
  ~BlockHandle();

  explicit operator bool() const noexcept { return pool_ != nullptr; }
  /// The block. The handle must not be empty.
  BlockId id() const;

 private:
  friend class BlockPool;
  friend class BlockChain;
  BlockHandle(BlockPool& pool, BlockId id) noexcept : pool_(&pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  BlockId id_;
};

/// The blocks of one sequence in token order: position p lives in ids()[p / block_size]. Holds one
/// reference per block, 4 bytes each, laid out as the block table that model runners read.
///
/// C1  The registered blocks of a chain are a prefix of it, and each is registered by its writer,
///     once: a block never becomes findable before the one in front of it.
/// C2  Blocks are given back last to first, so that the pool evicts the tail of a prefix before its
///     beginning, and a child block never outlives its parent in the cache.
///
///   BlockChain chain = pool.match_prefix(hasher.sequences());  // reuse what is there
///   while (chain.size() < needed) {
///     chain.append(pool.allocate());                           // one writer: this sequence
///   }
///   chain.register_block(i, identity);                         // once block i is computed
class [[nodiscard]] BlockChain {
 public:
  explicit BlockChain(BlockPool& pool) noexcept : pool_(&pool) {}
  BlockChain(BlockChain&& other) noexcept;
  BlockChain& operator=(BlockChain&& other) noexcept;
  BlockChain(const BlockChain&) = delete;
  BlockChain& operator=(const BlockChain&) = delete;
  ~BlockChain();

  std::span<const BlockId> ids() const { return ids_; }
  size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }

  /// Takes the reference over. The handle must not be empty and must come from this chain's pool.
  void append(BlockHandle block);
  /// Block `index` is full and its KV is computed. If the pool already has an identical block, this
  /// one is dropped in favour of it and ids()[index] changes. See BlockPool::register_block for
  /// when a block stays private. Blocks must be registered in order.
  void register_block(size_t index, const BlockIdentity& identity);
  /// Gives everything back, last block first.
  void clear() noexcept;

 private:
  friend class BlockPool;
  BlockPool* pool_;
  std::vector<BlockId> ids_;
};

}  // namespace stator::kv
