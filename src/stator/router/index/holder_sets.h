// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/flat_map.h"

namespace stator::router {

/// Dense number of a (worker, rank) inside one index.
using Slot = uint32_t;
/// Names a set of slots. Below kSlotsMax: the set of exactly that slot. kNoHolders: the empty set.
using SetId = uint32_t;

inline constexpr uint32_t kSlotsMax = 1U << 16;
inline constexpr SetId kNoHolders = UINT32_MAX;

/// Interned sets of workers: thousands of blocks held by the same workers share one set of four
/// bytes a member, and a single holder costs nothing. Sets are counted references of the chains.
///
/// One writer; any thread may read the members of an id it found in a chain, while inside an epoch.
/// What a reader may still see is handed to the caller (`take_retired`) to free later.
class HolderSets {
 public:
  struct Members {
    uint64_t content = 0;     ///< sum of the members' hashes: order does not matter
    std::vector<Slot> slots;  ///< sorted, at least two unless slots were dropped
  };

  HolderSets();
  ~HolderSets();
  HolderSets(const HolderSets&) = delete;
  HolderSets& operator=(const HolderSets&) = delete;

  // Writer.
  // `with` and `without` count no reference: acquire what they return, or it is never freed.
  SetId with(SetId set, Slot slot);     ///< same set if it is a member
  SetId without(SetId set, Slot slot);  ///< same set if it is none
  void acquire(SetId set);
  void release(SetId set);
  bool contains(SetId set, Slot slot) const;
  /// Takes the slot out of every set at once, under the sets' ids. Sets of the slot alone remain.
  void drop_slot(Slot slot);

  /// What left its place since the last call. A reader may still see it: hand it to `recycle` when
  /// none can.
  struct Retired {
    std::unique_ptr<const Members> members;
    SetId set = kNoHolders;  ///< an id to use again, if any
  };
  std::vector<Retired> take_retired();
  void recycle(Retired retired);
  size_t bytes() const { return bytes_; }
  size_t size() const { return live_; }

  // Any thread. `single` is storage for a one-member answer.
  std::span<const Slot> members(SetId set, Slot& single) const {
    if (set == kNoHolders) {
      return {};
    }
    if (set < kSlotsMax) {
      single = set;
      return {&single, 1};
    }
    const Members* found = record(set).members.load(std::memory_order_acquire);
    return found == nullptr ? std::span<const Slot>() : std::span(found->slots);
  }

 private:
  struct Record {
    std::atomic<const Members*> members{nullptr};
    uint32_t references = 0;
  };
  static constexpr uint32_t kChunk = 4096;
  static constexpr uint32_t kChunksMax = 4096;

  Record& record(SetId set) const {
    const uint32_t index = set - kSlotsMax;
    return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
  }
  SetId intern(std::vector<Slot> slots, uint64_t content);
  void replace(SetId set, std::unique_ptr<const Members> members);

  mutable std::array<std::atomic<Record*>, kChunksMax> chunks_{};
  uint32_t records_ = 0;
  std::vector<SetId> free_;
  FlatMap<uint64_t, std::vector<SetId>> by_content_;
  std::vector<Retired> retired_;
  size_t bytes_ = 0;
  size_t live_ = 0;
};

}  // namespace stator::router
