// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stator/core/result.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/kv/block_id.h"
#include "stator/memory/arena.h"

namespace stator::engine::cpu {

/// What the bytes of a KV block mean; two engines may exchange blocks iff theirs are equal (and the
/// model is the same).
struct KvLayout {
  uint32_t version = 2;  ///< of this layout
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;     ///< as the model says; stored padded to a multiple of 16
  uint32_t block_size = 16;  ///< tokens
  KvType type = KvType::kF32;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
  size_t element_bytes() const { return type == KvType::kF32 ? 4 : type == KvType::kInt8 ? 1 : 2; }
  size_t padded_dim() const { return static_cast<size_t>(round_up_lanes(head_dim)); }
  /// Of the keys or the values of one head: elements, then (kInt8) a scale per token.
  size_t head_bytes() const {
    const size_t scales = type == KvType::kInt8 ? sizeof(float) * block_size : 0;
    return padded_dim() * block_size * element_bytes() + scales;
  }
  size_t layer_bytes() const { return 2 * kv_heads * head_bytes(); }
  size_t block_bytes() const { return layer_bytes() * layers; }
};

/// All KV blocks of one engine, in one arena: [block][layer][K|V][kv_head]. Keys of a head are
/// [dim][token], so that attention loads 16 tokens at once; values are [token][dim]. The block
/// comes first, so that a block is one contiguous range to send, store or compare. Keys are stored
/// after RoPE.
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

  /// Of one layer and head: head_bytes() each.
  std::byte* keys(kv::BlockId block, uint32_t layer, uint32_t head);
  std::byte* values(kv::BlockId block, uint32_t layer, uint32_t head);
  /// The scales behind such elements, one per token (kInt8).
  float* scales(std::byte* head_elements) const {
    return reinterpret_cast<float*>(head_elements + layout_.padded_dim() * layout_.block_size *
                                                        layout_.element_bytes());
  }
  /// Gives the memory of all blocks back to the system; they read as zeros afterwards.
  void discard();

 private:
  KvLayout layout_;
  uint32_t blocks_ = 0;
  memory::Arena arena_;
};

}  // namespace stator::engine::cpu
