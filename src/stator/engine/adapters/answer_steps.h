// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/engine/adapters/adapter_commands.h"
#include "stator/engine/adapters/adapter_metrics.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/raise.h"
#include "stator/engine/api/engine.h"

namespace stator::engine::adapters {

/// What came of servers' answers within a turn, as one step per session: tokens, ends, failures,
/// vectors, offers of prompts. The adapter's thread.
class AnswerSteps {
 public:
  /// All outlive it. `lease`: how long a server keeps a prompt, if it does not say so.
  AnswerSteps(const Dialect& dialect, const EngineFacts& facts, Duration lease,
              AdapterMetrics& metrics)
      : dialect_(dialect), facts_(facts), lease_(lease), metrics_(metrics) {}

  /// Hands on what was raised, and takes it away from there. Returned: for how long the server
  /// keeps a prompt that was offered with it; nothing: none was.
  std::optional<Duration> add(Live& live, Raised& raised);
  /// Nobody hears it of a request that was forsaken.
  void fail(const Live& live, Error error);
  void fail(SessionId session, inference::RequestKey key, Error error);

  bool empty() const { return steps_.empty(); }
  using Steps = FlatMap<SessionId, inference::StepOutput>;
  /// To be delivered; clear() when that is done.
  Steps& all() { return steps_; }
  void clear() { steps_.clear(); }

 private:
  std::optional<Duration> add_offer(inference::StepOutput& step, const Live& live, Raised& raised);

  const Dialect& dialect_;
  const EngineFacts& facts_;
  const Duration lease_;
  AdapterMetrics& metrics_;
  Steps steps_;
};

}  // namespace stator::engine::adapters
