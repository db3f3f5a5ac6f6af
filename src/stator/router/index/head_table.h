// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "stator/router/index/secret_mix.h"

namespace stator::router {

/// Sequence hash of a chain's first block → chain id. One writer, any number of readers without a
/// lock: a reader sees each entry or not, never half of one. 32 bits of the hash stand beside the
/// id; the caller compares the whole hash with the chain's own.
///
/// A grown table replaces the old one, which the caller frees when no reader can be inside any
/// more.
class HeadTable {
 public:
  struct alignas(64) Slots {
    explicit Slots(size_t capacity)
        : mask(capacity - 1), slots(std::make_unique<std::atomic<uint64_t>[]>(capacity)) {}
    size_t mask;
    std::unique_ptr<std::atomic<uint64_t>[]> slots;
    size_t bytes() const { return (mask + 1) * sizeof(uint64_t); }
  };

  HeadTable()
      : current_(std::make_unique<Slots>(kSmallest)), filter_(kSmallest * kFilterBits / 64) {
    published_.store(current_.get());
  }

  /// Calls `matches(chain)` for every candidate until one says true.
  template <typename Matches>
  std::optional<uint32_t> find(uint64_t sequence, Matches&& matches) const {
    const Slots& table = *published_.load(std::memory_order_acquire);
    for (size_t i = tag_of(sequence) & table.mask;; i = (i + 1) & table.mask) {
      const uint64_t slot = table.slots[i].load(std::memory_order_acquire);
      if (slot == kEmpty) {
        return std::nullopt;
      }
      // The tag of a hash of 0 (and of one in 2^32 others) is that of a tombstone.
      if (slot >> 32 == tag_of(sequence) && slot != kTombstone && matches(chain_of(slot))) {
        return chain_of(slot);
      }
    }
  }

  /// The writer's: false when no chain has that head, true when one may. A bit of a small table
  /// instead of a probe, for the many blocks that head nothing.
  bool may_contain(uint64_t sequence) const {
    const uint64_t bit = filter_bit(sequence);
    return (filter_[bit / 64] >> bit % 64 & 1) != 0;
  }

  /// The writer's. A returned table is the old one: keep it until no reader can see it. A table
  /// that is full and may not grow gets fuller, up to nine tenths.
  enum class Grow : uint8_t { kIfMust, kYes };
  [[nodiscard]] std::unique_ptr<Slots> insert(uint64_t sequence, uint32_t chain, Grow grow) {
    std::unique_ptr<Slots> old;
    if (is_full()) {
      const bool must = live_ * 10 > (current_->mask + 1) * 9;
      old = rebuild(grows() && (grow == Grow::kYes || must) ? 2 : 1);
    }
    place(*current_, value_of(sequence, chain));
    note(tag_of(sequence));
    ++live_;
    return old;
  }

  void erase(uint64_t sequence, uint32_t chain) {
    Slots& table = *current_;
    const uint64_t wanted = value_of(sequence, chain);
    for (size_t i = tag_of(sequence) & table.mask;; i = (i + 1) & table.mask) {
      const uint64_t slot = table.slots[i].load(std::memory_order_relaxed);
      if (slot == kEmpty) {
        return;
      }
      if (slot == wanted) {
        table.slots[i].store(kTombstone, std::memory_order_release);
        --live_;
        return;
      }
    }
  }

  void prefetch(uint64_t sequence) const {
    const Slots& table = *published_.load(std::memory_order_acquire);
    __builtin_prefetch(&table.slots[tag_of(sequence) & table.mask]);
  }

  /// What stands beside the id, and says where. A first block's sequence hash is its local hash:
  /// mixed again, in case a publisher's are weak or a client's are chosen.
  uint64_t tag_of(uint64_t sequence) const { return mix_(sequence) >> 32; }

  size_t bytes() const { return current_->bytes() + filter_.size() * sizeof(uint64_t); }
  /// By which the next insertion may enlarge the table.
  size_t growth_bytes() const { return is_full() && grows() ? bytes() : 0; }

 private:
  static constexpr size_t kSmallest = 64;
  static constexpr size_t kFilterBits = 16;  // a slot: at most one bit of 23 is set
  static constexpr uint64_t kEmpty = 0;
  static constexpr uint64_t kTombstone = 1;

  uint64_t value_of(uint64_t sequence, uint32_t chain) const {
    return tag_of(sequence) << 32 | (uint64_t{chain} + 2);
  }
  static uint32_t chain_of(uint64_t slot) { return static_cast<uint32_t>(slot) - 2; }

  // The filter's bits are as many times a power of two as the slots; its bit of a head is fixed by
  // the same 32 bits, multiplied again so that neighbours in one do not meet in the other.
  uint64_t filter_bit_of(uint64_t tag) const {
    return (tag * 0x9E3779B97F4A7C15ULL >> 20) & (filter_.size() * 64 - 1);
  }
  uint64_t filter_bit(uint64_t sequence) const { return filter_bit_of(tag_of(sequence)); }
  void note(uint64_t tag) {
    const uint64_t bit = filter_bit_of(tag);
    filter_[bit / 64] |= uint64_t{1} << bit % 64;
  }

  void place(Slots& table, uint64_t value) {
    for (size_t i = (value >> 32) & table.mask;; i = (i + 1) & table.mask) {
      const uint64_t slot = table.slots[i].load(std::memory_order_relaxed);
      if (slot == kEmpty || slot == kTombstone) {
        filled_ += slot == kEmpty ? 1 : 0;
        table.slots[i].store(value, std::memory_order_release);
        return;
      }
    }
  }

  bool is_full() const { return (filled_ + 1) * 10 > (current_->mask + 1) * 7; }
  /// Whether the next rebuild enlarges the table, or only clears it of tombstones.
  bool grows() const { return live_ * 100 > (current_->mask + 1) * 66; }

  std::unique_ptr<Slots> rebuild(size_t factor) {
    const size_t capacity = (current_->mask + 1) * factor;
    auto grown = std::make_unique<Slots>(capacity);
    filled_ = 0;
    filter_.assign(capacity * kFilterBits / 64, 0);
    for (size_t i = 0; i <= current_->mask; ++i) {
      const uint64_t slot = current_->slots[i].load(std::memory_order_relaxed);
      if (slot > kTombstone) {
        place(*grown, slot);
        note(slot >> 32);
      }
    }
    std::swap(grown, current_);
    published_.store(current_.get(), std::memory_order_release);
    return grown;
  }

  const SecretMix mix_;
  // On a cache line of its own: readers look here every time, the writer writes the rest.
  alignas(64) std::atomic<const Slots*> published_{nullptr};
  alignas(64) std::unique_ptr<Slots> current_;
  std::vector<uint64_t> filter_;  // bits of erased heads stay until the next rebuild
  size_t filled_ = 0;             // with chains or tombstones
  size_t live_ = 0;
};

}  // namespace stator::router
