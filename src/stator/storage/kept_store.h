// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "stator/core/mutex.h"
#include "stator/storage/block_store.h"
#include "stator/storage/kept_memory.h"
#include "stator/storage/slot_index.h"

namespace stator::storage {

/// KV blocks in memory that a keeper holds (kept_memory.h): an engine that crashed finds them
/// again. Slots of header and payload; what a slot holds is said by its header alone.
///
/// M1  A slot's header is taken away before its payload changes and written after it: a crash in
///     between leaves a slot that holds nothing. Whoever reads checks payload and header anyway.
/// M2  Bounded by the memory's size; the least recently used chains go first, tails before heads.
/// Thread-safety: all methods, any thread.
class KeptStore final : public BlockStore {
 public:
  /// Finds what is there of namespace `space`. kInvalidArgument: it does not hold one block.
  static Result<std::unique_ptr<KeptStore>> open(KeptMemory memory, const Digest& space,
                                                 uint64_t block_bytes);

  std::string_view tier() const override { return "kept"; }
  Result<size_t> count(std::span<const BlockName> names) override;
  Status get(const BlockName& name, std::span<std::byte> record) override;
  Status put(const BlockName& name, std::span<const std::byte> record) override;

  uint32_t slots() const { return slots_; }
  uint32_t stored() const;
  uint32_t recovered() const { return recovered_; }

 private:
  KeptStore(KeptMemory memory, uint64_t block_bytes);
  void recover(const Digest& space);
  std::span<std::byte> slot(uint32_t index) {
    return memory_.bytes().subspan(index * stride_, stride_);
  }

  KeptMemory memory_;
  const uint64_t stride_;
  const uint32_t slots_;
  uint32_t recovered_ = 0;
  mutable Mutex mutex_;
  SlotIndex index_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::storage
