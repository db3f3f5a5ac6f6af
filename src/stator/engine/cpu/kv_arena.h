// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stator/core/result.h"
#include "stator/kv/block_id.h"
#include "stator/memory/arena.h"

namespace stator::engine::cpu {

/// What the bytes of a KV block mean; two engines may exchange blocks iff theirs are equal (and the
/// model is the same). Elements are f32.
struct KvLayout {
  uint32_t version = 1;  ///< of this layout
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_size = 16;  ///< tokens

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
  /// Floats of all heads of one token, keys or values.
  size_t token_floats() const { return size_t{kv_heads} * head_dim; }
  size_t layer_floats() const { return 2 * token_floats() * block_size; }
  size_t block_bytes() const { return layer_floats() * layers * sizeof(float); }
};

/// All KV blocks of one engine, in one arena: [block][layer][K|V][token][kv_head][head_dim]. The
/// block comes first, so that a block is one contiguous range to send, store or compare. Keys are
/// stored after RoPE.
///
/// I1  Addresses never change. Memory is resident only for blocks that were written.
/// Which block belongs to whom is decided above (the engine's block pool); nothing is checked here
/// but the index.
class KvArena {
 public:
  /// kInvalidArgument if a size is zero or the whole does not fit into an address space.
  static Result<KvArena> create(const KvLayout& layout, uint32_t blocks,
                                memory::Sharing sharing = memory::Sharing::kPrivate);

  const KvLayout& layout() const { return layout_; }
  uint32_t blocks() const { return blocks_; }

  std::span<std::byte> block_view(kv::BlockId block);
  std::span<const std::byte> block_view(kv::BlockId block) const;
  /// XXH3 of the block's bytes: equal checksums mean bit-equal blocks for all practical purposes.
  uint64_t checksum(kv::BlockId block) const;

  /// [token][kv_head][head_dim] of one layer.
  float* keys(kv::BlockId block, uint32_t layer);
  float* values(kv::BlockId block, uint32_t layer);

 private:
  KvLayout layout_;
  uint32_t blocks_ = 0;
  memory::Arena arena_;
};

}  // namespace stator::engine::cpu
