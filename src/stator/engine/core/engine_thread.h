// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/thread.h"

namespace stator::engine {

/// An engine's thread, and its one life: started once, ended once, never started again. Any thread,
/// but not from the body.
class EngineThread {
 public:
  /// kAlreadyExists if it runs, kDraining after end().
  Status start(std::string name, std::function<void()> body);
  /// Calls `ask`, after which the body must return soon, and waits for it. If it was never started,
  /// `instead` is called in its place. Idempotent.
  void end(const std::function<void()>& ask, const std::function<void()>& instead);

 private:
  Mutex mutex_;  // outermost: held while the callers' functions run
  bool started_ STATOR_GUARDED_BY(mutex_) = false;
  bool ended_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::engine
