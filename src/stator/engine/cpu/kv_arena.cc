// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/kv_arena.h"

#include <fmt/format.h>

#include "stator/core/assert.h"
#include "stator/core/hash.h"

namespace stator::engine::cpu {

Result<KvArena> KvArena::create(const KvLayout& layout, uint32_t blocks, memory::Sharing sharing) {
  uint64_t bytes = sizeof(float) * 2;
  for (const uint32_t factor :
       {layout.layers, layout.kv_heads, layout.head_dim, layout.block_size, blocks}) {
    if (factor == 0 || __builtin_mul_overflow(bytes, factor, &bytes)) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("a KV cache of {} blocks of {} tokens is not possible: set kv_blocks "
                      "and block_size to reasonable values",
                      blocks, layout.block_size));
    }
  }
  KvArena arena;
  STATOR_TRY(arena.arena_,
             memory::Arena::create({.bytes = bytes, .sharing = sharing, .name = "stator-kv"}),
             "allocating the KV cache");
  arena.layout_ = layout;
  arena.blocks_ = blocks;
  return arena;
}

std::span<std::byte> KvArena::block_view(kv::BlockId block) {
  STATOR_ASSERT(block.value() < blocks_, "KvArena: no such block");
  return arena_.bytes().subspan(block.value() * layout_.block_bytes(), layout_.block_bytes());
}

std::span<const std::byte> KvArena::block_view(kv::BlockId block) const {
  STATOR_ASSERT(block.value() < blocks_, "KvArena: no such block");
  return arena_.bytes().subspan(block.value() * layout_.block_bytes(), layout_.block_bytes());
}

uint64_t KvArena::checksum(kv::BlockId block) const {
  return xxh3_64(block_view(block));
}

float* KvArena::keys(kv::BlockId block, uint32_t layer) {
  return reinterpret_cast<float*>(block_view(block).data()) + layer * layout_.layer_floats();
}

float* KvArena::values(kv::BlockId block, uint32_t layer) {
  return keys(block, layer) + layout_.token_floats() * layout_.block_size;
}

}  // namespace stator::engine::cpu
