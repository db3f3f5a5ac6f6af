// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/engine_memory.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace stator::connectors {
namespace {

std::byte* at(const Region& region, uint64_t block) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the engine says where its memory is
  return reinterpret_cast<std::byte*>(region.address + block * region.stride);
}

}  // namespace

Result<EngineMemory> EngineMemory::create(std::span<const Region> regions, uint64_t blocks,
                                          uint64_t block_bytes) {
  if (regions.empty() || regions.size() > kRegionsMax || blocks == 0) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("an engine's memory has 1 to {} regions and at least one block", kRegionsMax));
  }
  uint64_t bytes = 0;
  for (const Region& region : regions) {
    if (region.address == 0 || region.bytes == 0 || region.bytes > block_bytes ||
        (blocks > 1 && region.stride == 0)) {
      return Error(Code::kInvalidArgument, "a region has an address, bytes and a stride");
    }
    bytes += region.bytes;
  }
  if (bytes != block_bytes) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the regions of a block have {} bytes, the cache's blocks have {}",
                             bytes, block_bytes));
  }
  return EngineMemory({regions.begin(), regions.end()}, blocks, block_bytes);
}

EngineMemory EngineMemory::of_pointers(uint64_t block_bytes) {
  return {{{.address = 0, .stride = 1, .bytes = block_bytes}}, UINT64_MAX, block_bytes};
}

void EngineMemory::gather(uint64_t block, std::span<std::byte> out) const {
  size_t filled = 0;
  for (const Region& region : regions_) {
    std::memcpy(out.data() + filled, at(region, block), region.bytes);
    filled += region.bytes;
  }
}

void EngineMemory::scatter(uint64_t block, std::span<const std::byte> from) const {
  size_t used = 0;
  for (const Region& region : regions_) {
    std::memcpy(at(region, block), from.data() + used, region.bytes);
    used += region.bytes;
  }
}

}  // namespace stator::connectors
