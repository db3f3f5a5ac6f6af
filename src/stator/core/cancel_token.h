// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "stator/core/result.h"

namespace stator {

/// Says that nobody wants the outcome of some work any more. Whoever ordered the work sets it; the
/// work looks at it every now and then and ends with kCancelled, which is no failure and is not
/// logged. One relaxed load: cheap enough for every few microseconds of work. Thread-safe.
class CancelToken {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  /// kCancelled when nobody waits. `token` null: somebody always does.
  static Status check(const CancelToken* token) {
    if (token != nullptr && token->cancelled()) [[unlikely]] {
      return Error(Code::kCancelled, "the client left");
    }
    return {};
  }

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace stator
