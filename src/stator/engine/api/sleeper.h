// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace stator::engine {

/// An engine that can give up its memory for a while. Thread-safe.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// Asleep it refuses new requests (kUnavailable); those it has go on, and behind the last one the
  /// KV cache is forgotten (an AllCleared event follows) and its memory given back to the system.
  virtual void set_asleep(bool asleep) = 0;
  virtual bool asleep() const = 0;
};

}  // namespace stator::engine
