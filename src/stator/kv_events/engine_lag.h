// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/kv_events/engine_events.h"

namespace stator::kv_events {

/// How old engines' events are when they have been passed on: stator_events_engine_lag_seconds, by
/// the engine's wall clock and ours. Of batches that carry a time; a time ahead of ours counts as
/// none. Any thread.
class EngineLag {
 public:
  explicit EngineLag(Metrics& metrics);

  void observe(const EngineEventBatch& batch, WallTime now) const;

 private:
  Histogram seconds_;
};

}  // namespace stator::kv_events
