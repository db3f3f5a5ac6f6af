// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/engine/handoff/messages.h"

namespace stator::engine::handoff {

/// How one side of a hand-off reaches the other. Thread-safe.
class Link {
 public:
  virtual ~Link() = default;
  /// Makes a transfer agent known by its metadata; its name, or empty if it cannot be reached.
  virtual std::string introduce(std::string_view metadata) = 0;
  /// False: it is gone, or was never introduced. Nothing is sent twice.
  virtual bool send(std::string_view agent, const Message& message) = 0;
  /// Something is to be done on the port's thread.
  virtual void wake() = 0;
};

}  // namespace stator::engine::handoff
