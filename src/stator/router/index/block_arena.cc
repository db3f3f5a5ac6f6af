// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/block_arena.h"

#include <algorithm>
#include <bit>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

constexpr uint32_t kSizes = BlockArena::kRangeMax / BlockArena::kGranule + 1;

constexpr auto kManyPages = memory::HugePages::kAdviseWhenLarge;
constexpr auto kFewPages = memory::HugePages::kNo;

template <typename T>
Result<T*> reserve(memory::Arena& memory, uint64_t count, memory::HugePages pages) {
  STATOR_TRY(memory, memory::Arena::create({.bytes = count * sizeof(T), .huge_pages = pages}));
  return reinterpret_cast<T*>(memory.bytes().data());
}

}  // namespace

Result<BlockArena> BlockArena::create(uint64_t rows_max) {
  BlockArena arena;
  const uint64_t granules =
      (std::clamp<uint64_t>(rows_max, kRangeMax, kRowsMax) + kGranule - 1) / kGranule;
  arena.rows_max_ = static_cast<uint32_t>(granules * kGranule);
  STATOR_TRY(arena.sequences_,
             reserve<uint64_t>(arena.sequence_memory_, arena.rows_max_, kManyPages));
  STATOR_TRY(arena.externals_,
             reserve<uint64_t>(arena.external_memory_, arena.rows_max_, kManyPages));
  // One more granule, so that the end of the last range has a neighbour to look at.
  STATOR_TRY(arena.owners_, reserve<uint32_t>(arena.owner_memory_, granules + 1, kFewPages));
  STATOR_TRY(arena.links_, reserve<uint32_t>(arena.link_memory_, granules + 1, kFewPages));
  arena.free_.resize(kSizes + 1);
  return arena;
}

std::vector<uint32_t>& BlockArena::list_of(uint32_t rows) {
  return free_[std::min(rows / kGranule, kSizes)];
}

void BlockArena::mark_free(uint32_t base, uint32_t rows) {
  owners_[base / kGranule] = kFree | rows;
  owners_[(base + rows) / kGranule - 1] = kFree | rows;
  std::vector<uint32_t>& list = list_of(rows);
  links_[base / kGranule] = static_cast<uint32_t>(list.size());
  list.push_back(base);
  const uint32_t size = std::min(rows / kGranule, kSizes);
  sizes_free_[size / 64] |= uint64_t{1} << size % 64;
}

void BlockArena::unlink(uint32_t base, uint32_t rows) {
  std::vector<uint32_t>& list = list_of(rows);
  const uint32_t index = links_[base / kGranule];
  STATOR_ASSERT(index < list.size() && list[index] == base, "a free range that is in no list");
  list[index] = list.back();
  links_[list[index] / kGranule] = index;
  list.pop_back();
  if (list.empty()) {
    const uint32_t size = std::min(rows / kGranule, kSizes);
    sizes_free_[size / 64] &= ~(uint64_t{1} << size % 64);
  }
}

/// The first list from `size` on that has a range, or none: kSizes + 1.
uint32_t BlockArena::first_free(uint32_t size) const {
  static_assert(kSizes < 128);
  for (uint32_t word = size / 64; word < sizes_free_.size(); ++word) {
    const uint64_t from = word == size / 64 ? ~uint64_t{0} << size % 64 : ~uint64_t{0};
    if (const uint64_t found = sizes_free_[word] & from; found != 0) {
      return word * 64 + static_cast<uint32_t>(std::countr_zero(found));
    }
  }
  return kSizes + 1;
}

std::optional<uint32_t> BlockArena::allocate(uint32_t rows, Grow grow) {
  rows = rounded(rows);
  STATOR_ASSERT(rows > 0 && rows <= kRangeMax, "a range of an impossible size");
  if (const uint32_t size = first_free(rows / kGranule); size <= kSizes) {
    const uint32_t base = free_[size].back();
    const uint32_t have = owners_[base / kGranule] & ~kFree;
    unlink(base, have);
    if (have > rows) {
      mark_free(base + rows, have - rows);
    }
    used_ += rows;
    return base;
  }
  if (grow == Grow::kNo || rows > rows_max_ - top_) {
    return std::nullopt;
  }
  const uint32_t base = top_;
  top_ += rows;
  used_ += rows;
  return base;
}

void BlockArena::release(uint32_t base, uint32_t rows) {
  rows = rounded(rows);
  used_ -= rows;
  std::fill_n(&owners_[base / kGranule], rows / kGranule, kFree);
  if (base + rows < top_) {
    const uint32_t after = owners_[(base + rows) / kGranule];
    if ((after & kFree) != 0) {
      unlink(base + rows, after & ~kFree);
      rows += after & ~kFree;
    }
  }
  if (base > 0) {
    const uint32_t before = owners_[base / kGranule - 1];
    if ((before & kFree) != 0) {
      base -= before & ~kFree;
      unlink(base, before & ~kFree);
      rows += before & ~kFree;
    }
  }
  if (base + rows == top_) {
    top_ = base;
    return;
  }
  mark_free(base, rows);
}

bool BlockArena::extend(uint32_t base, uint32_t rows, uint32_t new_rows) {
  rows = rounded(rows);
  new_rows = rounded(new_rows);
  const uint32_t more = new_rows - rows;
  const uint32_t next = base + rows;
  if (more == 0) {
    return true;
  }
  if (next == top_) {
    if (more > rows_max_ - top_) {
      return false;
    }
    top_ += more;
    used_ += more;
    return true;
  }
  const uint32_t after = owners_[next / kGranule];
  if ((after & kFree) == 0 || (after & ~kFree) < more) {
    return false;
  }
  const uint32_t have = after & ~kFree;
  unlink(next, have);
  if (have > more) {
    mark_free(next + more, have - more);
  }
  used_ += more;
  return true;
}

void BlockArena::set_owner(uint32_t base, uint32_t rows, uint32_t chain) {
  STATOR_ASSERT((chain & kFree) == 0, "chain id out of range");
  std::fill_n(&owners_[base / kGranule], rounded(rows) / kGranule, chain);
}

}  // namespace stator::router
