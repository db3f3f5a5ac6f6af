// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/net/thread.h"

namespace stator::session::detail {

/// Something with output to start sending.
class Pumped {
 public:
  virtual ~Pumped() = default;
  /// On the pump's thread. Must not block.
  virtual void pump() noexcept = 0;

 private:
  friend class Pump;
  std::atomic<bool> queued_{false};
};

/// A thread that starts writes on behalf of threads too precious for it: the engine's. Each object
/// waits at most once, so the queue is bounded by the number of streams.
class Pump {
 public:
  /// `tick` runs on the pump's thread about every `interval`, too; may be null.
  Pump(std::string name, Duration interval, std::function<void()> tick);
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;
  ~Pump();

  /// Any thread; cheap.
  void kick(std::shared_ptr<Pumped> target) STATOR_EXCLUDES(mutex_);
  /// Returns when the thread has ended; later kicks do nothing. Idempotent.
  void stop() STATOR_EXCLUDES(mutex_);

 private:
  void run(Duration interval, const std::function<void()>& tick);

  Mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<std::shared_ptr<Pumped>> queue_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace stator::session::detail
