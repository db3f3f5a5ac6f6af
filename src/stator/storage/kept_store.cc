// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/kept_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

namespace stator::storage {
namespace {

constexpr uint64_t kLine = 64;

uint64_t stride_of(uint64_t block_bytes) {
  return BlockHeader::kBytes + (block_bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

KeptStore::KeptStore(KeptMemory memory, uint64_t block_bytes)
    : memory_(std::move(memory)),
      stride_(stride_of(block_bytes)),
      slots_(static_cast<uint32_t>(std::min<uint64_t>(memory_.bytes().size() / stride_, 1U << 26))),
      index_(slots_) {}

Result<std::unique_ptr<KeptStore>> KeptStore::open(KeptMemory memory, const Digest& space,
                                                   uint64_t block_bytes) {
  auto store = std::unique_ptr<KeptStore>(new KeptStore(std::move(memory), block_bytes));
  if (store->slots_ == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("kv.kept_bytes {} does not hold one KV block of {} bytes",
                             store->memory_.bytes().size(), store->stride_));
  }
  if (!store->memory_.fresh()) {
    store->recover(space);
  }
  return store;
}

void KeptStore::recover(const Digest& space) {
  std::vector<std::pair<uint64_t, SlotIndex::Held>> found;
  for (uint32_t i = 0; i < slots_; ++i) {
    const auto header = decode_header(slot(i).first(BlockHeader::kBytes));
    if (header && header->space == space &&
        header->payload_bytes <= stride_ - BlockHeader::kBytes) {
      found.push_back(
          {header->unix_ms, {.slot = i, .name = header->name, .parent = header->parent}});
    }
  }
  // Oldest first; of those of one moment tails first.
  std::ranges::sort(found, [](const auto& a, const auto& b) {
    return std::pair(a.first, b.second.name.lineage) < std::pair(b.first, a.second.name.lineage);
  });
  std::vector<SlotIndex::Held> held;
  for (auto& [when, one] : found) {
    held.push_back(std::move(one));
  }
  const MutexLock lock(mutex_);
  index_.adopt(held);
  recovered_ = index_.stored();
}

uint32_t KeptStore::stored() const {
  const MutexLock lock(mutex_);
  return index_.stored();
}

Result<size_t> KeptStore::count(std::span<const BlockName> names) {
  const MutexLock lock(mutex_);
  return index_.match(names);
}

Status KeptStore::get(const BlockName& name, std::span<std::byte> record) {
  uint32_t found = 0;
  {
    const MutexLock lock(mutex_);
    const auto known = index_.find(name);
    if (!known) {
      return Error(Code::kNotFound, "the block is not in kept memory");
    }
    found = *known;
    index_.pin(found);
  }
  const bool fits = record.size() <= stride_;
  if (fits) {
    std::memcpy(record.data(), slot(found).data(), record.size());
  }
  const MutexLock lock(mutex_);
  index_.unpin(found);
  return fits ? Status() : Status(Error(Code::kCorrupt, "a KV block of another size"));
}

Status KeptStore::put(const BlockName& name, std::span<const std::byte> record) {
  STATOR_TRY(const BlockHeader header, decode_header(record.first(BlockHeader::kBytes)));
  if (record.size() > stride_) {
    return Error(Code::kInvalidArgument, "a KV block of another size");
  }
  SlotIndex::Reserved reserved;
  {
    const MutexLock lock(mutex_);
    if (index_.knows(name.lineage)) {
      return Error(Code::kAlreadyExists, "the block is there");
    }
    const auto taken = index_.reserve(name, header.parent);
    if (!taken) {
      return Error(Code::kOverloaded, "every slot of kept memory is being read or written");
    }
    reserved = *taken;
  }
  const std::span<std::byte> place = slot(reserved.slot);
  std::memset(place.data(), 0, kLine);  // M1: its magic and checksum
  std::atomic_thread_fence(std::memory_order_release);
  const auto payload = record.subspan(kLine);
  std::memcpy(place.data() + kLine, payload.data(), payload.size());
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(place.data(), record.data(), kLine);
  const MutexLock lock(mutex_);
  index_.publish(reserved.slot);
  return {};
}

}  // namespace stator::storage
