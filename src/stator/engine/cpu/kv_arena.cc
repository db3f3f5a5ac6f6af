// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/kv_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "stator/core/assert.h"
#include "stator/core/hash.h"

namespace stator::engine::cpu {

Result<KvArena> KvArena::create(const KvLayout& layout, uint32_t blocks, memory::Sharing sharing) {
  uint64_t bytes = (sizeof(float) + 1) * 2 * kLanes;  // an upper bound, padding and scales included
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
  bytes = uint64_t{layout.block_bytes()} * blocks;
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

std::byte* KvArena::keys(kv::BlockId block, uint32_t layer, uint32_t head) {
  return block_view(block).data() + layer * layout_.layer_bytes() + head * layout_.head_bytes();
}

std::byte* KvArena::values(kv::BlockId block, uint32_t layer, uint32_t head) {
  return keys(block, layer, head) + layout_.kv_heads * layout_.head_bytes();
}

void KvArena::discard() {
  ::madvise(arena_.bytes().data(), arena_.bytes().size(), MADV_DONTNEED);
}

}  // namespace stator::engine::cpu
