// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/clock.h"

namespace stator::app {

/// SIGINT and SIGTERM as something the main thread waits for. Make it before any thread starts, so
/// that every thread inherits the blocked signals. SIGPIPE is ignored for the whole process.
class Signals {
 public:
  Signals();
  /// Blocks until one of them arrives.
  void wait();
  /// True if one arrived within `timeout`.
  bool wait_for(Duration timeout);
  /// The last one came from a keyboard (SIGINT): somebody waits for us to end.
  bool interactive() const;

 private:
  int last_ = 0;
};

}  // namespace stator::app
