// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "stator/core/clock.h"

namespace stator::simulator {

/// When each worker is to be looked at next: a binary heap by (time, worker) in which a worker
/// stands at most once and can be moved. O(log n).
class WakeQueue {
 public:
  struct Wake {
    TimePoint time{};
    uint32_t worker = 0;
    friend auto operator<=>(const Wake&, const Wake&) = default;
  };

  /// Adds the worker, or moves it.
  void set(uint32_t worker, TimePoint time);
  /// Takes the worker out if it is in.
  void erase(uint32_t worker);
  bool empty() const { return heap_.empty(); }
  /// The earliest; of several at once the lowest worker. Not empty.
  const Wake& top() const { return heap_.front(); }
  Wake pop();

 private:
  static constexpr uint32_t kAbsent = ~0U;
  void place(size_t at, const Wake& wake);
  void rise(size_t at);
  void sink(size_t at);

  std::vector<Wake> heap_;
  std::vector<uint32_t> position_;  // by worker
};

}  // namespace stator::simulator
