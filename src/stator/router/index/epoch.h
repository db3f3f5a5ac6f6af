// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace stator::router {

/// Epoch-based reclamation (Fraser, "Practical lock-freedom", 2004): readers announce themselves
/// without a lock, and a writer frees what it unlinked only after every reader that might still see
/// it has left.
///
///   reader:  auto guard = epochs.enter();  … read shared structures …
///   writer:  unlink(x);  retired.push_back({epochs.advance(), x});
///            free every x with  x.epoch < epochs.oldest_reader()
///
/// Any number of threads may enter; at most kReadersMax are inside at once, a further one spins for
/// the microsecond a lookup takes. One writer at a time.
class EpochDomain {
 public:
  static constexpr size_t kReadersMax = 128;

  class Guard {
   public:
    explicit Guard(std::atomic<uint64_t>& slot) : slot_(slot) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { slot_.store(kIdle, std::memory_order_release); }

   private:
    std::atomic<uint64_t>& slot_;
  };

  /// What the guard protects: everything reachable from now on, until it is destroyed.
  Guard enter() const {
    static std::atomic<uint32_t> next_thread{0};
    static thread_local const uint32_t home = next_thread.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t i = home;; ++i) {
      std::atomic<uint64_t>& slot = slots_[i % kReadersMax].epoch;
      uint64_t idle = kIdle;
      // Sequentially consistent: the announcement must come before every read that it protects.
      if (slot.compare_exchange_strong(idle, epoch_.load(std::memory_order_acquire),
                                       std::memory_order_seq_cst)) {
        return Guard(slot);
      }
    }
  }

  /// Starts a new epoch and returns the one that ended: the retirement date of what was unlinked
  /// before the call.
  uint64_t advance() { return epoch_.fetch_add(1, std::memory_order_seq_cst); }

  /// Nothing retired before this epoch can still be seen.
  uint64_t oldest_reader() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    uint64_t oldest = epoch_.load(std::memory_order_relaxed);
    for (const Slot& slot : slots_) {
      const uint64_t announced = slot.epoch.load(std::memory_order_seq_cst);
      if (announced != kIdle && announced < oldest) {
        oldest = announced;
      }
    }
    return oldest;
  }

 private:
  static constexpr uint64_t kIdle = 0;
  struct alignas(64) Slot {
    std::atomic<uint64_t> epoch{kIdle};
  };
  mutable std::array<Slot, kReadersMax> slots_;
  std::atomic<uint64_t> epoch_{1};
};

}  // namespace stator::router
