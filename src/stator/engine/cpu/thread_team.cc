// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/thread_team.h"

#include <fmt/format.h>

#include "stator/core/assert.h"

namespace stator::engine::cpu {
namespace {

// About 20 µs of pause instructions: longer than the gaps between the loops of a layer, short
// enough that an idle engine does not keep a core busy.
constexpr int kSpins = 500;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once `value` is no longer `old`.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(uint32_t size) {
  STATOR_ASSERT(size >= 1 && size <= kSizeMax, "ThreadTeam: size out of range");
  workers_.reserve(size - 1);
  for (uint32_t member = 1; member < size; ++member) {
    workers_.emplace_back(fmt::format("cpu-engine-{}", member), [this, member] { work(member); });
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  workers_.clear();
}

void ThreadTeam::run_shared(const Loop& loop) {
  loop_ = loop;
  next_item_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_items(0);
  for (uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire)) {
    wait_while(busy_, busy);
  }
}

void ThreadTeam::take_items(uint32_t member) {
  for (int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed); item < loop_.items;
       item = next_item_.fetch_add(1, std::memory_order_relaxed)) {
    loop_.call(loop_.body, item, member);
  }
}

void ThreadTeam::work(uint32_t member) {
  for (uint32_t seen = 0;; ++seen) {
    // A worker takes part in every loop, so it can never fall more than one generation behind.
    wait_while(generation_, seen);
    if (stopping_) {
      return;
    }
    take_items(member);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      busy_.notify_one();
    }
  }
}

}  // namespace stator::engine::cpu
