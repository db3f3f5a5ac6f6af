// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/telemetry/request_facts.h"

namespace stator::frontend {

/// Where a request is on its way through the frontend, as existing dashboards name it.
enum class WorkStage : uint8_t {
  kNone,        ///< nowhere: not begun, streaming, or over
  kPreprocess,  ///< parsed, rendered, tokenized
  kRoute,       ///< waits for a worker
  kDispatch,    ///< sent to one, no token yet
};
/// Which part of the work the worker does.
enum class WorkPhase : uint8_t { kNone, kPrefill, kDecode, kAggregated };

/// The stage of one choice; counted while it is not kNone.
struct StagePlace {
  WorkStage stage = WorkStage::kNone;
  WorkPhase phase = WorkPhase::kNone;
  TimePoint since{};
  bool at_worker = false;  ///< counts as in flight on the request plane
};

/// Requests by stage, and how long stages and the way to workers take
/// (`<prefix>_stage_requests`, `<prefix>_stage_duration_seconds`, `dynamo_request_plane_*`). One
/// per shard; the series are shared. What it counts of a place is given back by leave().
class RequestMeters {
 public:
  RequestMeters(Metrics& metrics, const std::string& prefix);

  /// A request is being prepared, or not any more.
  void preparing(int change) const {
    requests(WorkStage::kPreprocess, WorkPhase::kNone).add(change);
  }
  void prepared(Duration took) const;
  /// A choice takes a step. `split`: another worker computed its prompt.
  void step(StagePlace& place, telemetry::Step step, TimePoint now, bool split) const;
  /// The worker said that it took the request.
  void accepted(const StagePlace& place, TimePoint now) const;
  /// It is over, or given up. Idempotent.
  void leave(StagePlace& place) const;
  /// A timer of the loop came so much too late.
  void loop_was_late(Duration by) const;

 private:
  static constexpr size_t kStages = 4;
  static constexpr size_t kPhases = 4;
  const Gauge& requests(WorkStage stage, WorkPhase phase) const {
    return requests_[static_cast<size_t>(stage)][static_cast<size_t>(phase)];
  }
  void enter(StagePlace& place, WorkStage stage, WorkPhase phase, TimePoint now) const;
  void quit_stage(StagePlace& place) const;

  std::array<std::array<Gauge, kPhases>, kStages> requests_;
  std::array<std::array<Histogram, kPhases>, kStages> durations_;
  std::array<Histogram, kPhases> roundtrips_;  // to the first token
  Histogram plane_queue_, plane_send_, plane_first_, loop_delay_;
  Counter loop_stalls_;
  Gauge plane_inflight_;
};

}  // namespace stator::frontend
