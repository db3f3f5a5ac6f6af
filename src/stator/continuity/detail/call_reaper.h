// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/thread.h"

namespace stator::continuity::detail {

/// Destroys ended client calls, with their channels, on a thread of its own.
///
/// gRPC 1.51 aborts (`ref_counted.h: prior > 0`, in grpc_cq_internal_unref) when the last channel
/// of a process goes on one of its own callback threads: most likely that thread then tears down
/// the completion queue it still polls. OnDone therefore hands its object over instead of deleting
/// it.
///
/// Thread-safe. What waits is bounded by the calls that were begun. Outlives every call: the
/// destructor waits for those that have not ended, so they must have been cancelled.
class CallReaper {
 public:
  CallReaper();
  CallReaper(const CallReaper&) = delete;
  CallReaper& operator=(const CallReaper&) = delete;
  ~CallReaper();

  /// Before the call starts.
  void begin() STATOR_EXCLUDES(mutex_);
  /// The last thing OnDone does, once per `begin`: the object may be gone when this returns.
  void end(std::shared_ptr<void> call) STATOR_EXCLUDES(mutex_);

 private:
  void run() STATOR_EXCLUDES(mutex_);

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::shared_ptr<void>> ended_ STATOR_GUARDED_BY(mutex_);
  size_t running_ STATOR_GUARDED_BY(mutex_) = 0;  // begun and not ended
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace stator::continuity::detail
