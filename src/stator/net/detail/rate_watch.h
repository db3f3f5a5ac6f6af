// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

#include "stator/core/clock.h"

namespace stator::net::detail {

/// Whether a transfer has become too slow. Looked at now and then; the mean of at least `kWindow`
/// counts, because kernels and networks move bytes in lumps of megabytes.
class RateWatch {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(20);

  /// A transfer begins.
  void start(TimePoint now) {
    since_ = now;
    moved_ = 0;
  }
  /// `moved` bytes so far, in all. True: fewer than `bytes_per_second` during the last window.
  bool too_slow(TimePoint now, size_t moved, size_t bytes_per_second) {
    const Duration elapsed = now - since_;
    if (elapsed < kWindow) {
      return false;
    }
    const double seconds = std::chrono::duration<double>(elapsed).count();
    const bool slow =
        static_cast<double>(moved - moved_) < seconds * static_cast<double>(bytes_per_second);
    since_ = now;
    moved_ = moved;
    return slow;
  }

 private:
  TimePoint since_;
  size_t moved_ = 0;
};

}  // namespace stator::net::detail
