// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/engine_lag.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stator::kv_events {
namespace {

constexpr std::array<double, 12> kSeconds = {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1,
                                             0.3,    1,     3,     10,   30,   100};

}  // namespace

EngineLag::EngineLag(Metrics& metrics)
    : seconds_(metrics.histogram("stator_events_engine_lag_seconds",
                                 "age of engines' KV events when they were passed on, by the "
                                 "engine's clock and ours",
                                 kSeconds)) {}

void EngineLag::observe(const EngineEventBatch& batch, WallTime now) const {
  if (!std::isfinite(batch.timestamp_s) || batch.timestamp_s <= 0) {
    return;
  }
  const double now_s = std::chrono::duration<double>(now.time_since_epoch()).count();
  seconds_.observe(std::max(0.0, now_s - batch.timestamp_s));
}

}  // namespace stator::kv_events
