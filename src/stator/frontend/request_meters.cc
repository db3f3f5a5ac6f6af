// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_meters.h"

#include <utility>

namespace stator::frontend {
namespace {

constexpr std::array<std::string_view, 4> kStageNames = {"", "preprocess", "route", "dispatch"};
constexpr std::array<std::string_view, 4> kPhaseNames = {"", "prefill", "decode", "aggregated"};
constexpr std::array kStageBounds = {.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05,
                                     .1,    .25,    .5,    1.0,  2.5,   5.0,  10., 30.,  60.};
constexpr std::array kPlaneBounds = {.0001, .00025, .0005, .001, .0025, .005, .01,
                                     .025,  .05,    .1,    .25,  .5,    1.0};
constexpr std::array kFirstBounds = {.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1.0, 2.5, 5.0};
constexpr std::array kLoopBounds = {.0001, .00025, .0005, .001, .0025, .005, .01,
                                    .025,  .05,    .1,    .25,  .5,    1.0};
constexpr Duration kStall = std::chrono::milliseconds(50);

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Combinations that occur.
bool occurs(size_t stage, size_t phase) {
  return static_cast<WorkStage>(stage) == WorkStage::kDispatch ? phase > 0
                                                               : stage > 0 && phase == 0;
}

}  // namespace

RequestMeters::RequestMeters(Metrics& metrics, const std::string& prefix) {
  const auto duration = [&](std::string_view stage, size_t phase) {
    return metrics.histogram(
        prefix + "_stage_duration_seconds", "how long requests are in a stage", kStageBounds,
        {{"stage", std::string(stage)}, {"phase", std::string(kPhaseNames[phase])}});
  };
  for (size_t stage = 0; stage < kStages; ++stage) {
    for (size_t phase = 0; phase < kPhases; ++phase) {
      if (occurs(stage, phase)) {
        requests_[stage][phase] = metrics.gauge(
            prefix + "_stage_requests", "requests before their first token, by where they are",
            {{"stage", std::string(kStageNames[stage])},
             {"phase", std::string(kPhaseNames[phase])}});
        durations_[stage][phase] = duration(kStageNames[stage], phase);
      }
    }
  }
  for (size_t phase = 1; phase < kPhases; ++phase) {
    roundtrips_[phase] = duration("transport_roundtrip", phase);
  }
  plane_queue_ = metrics.histogram("dynamo_request_plane_queue_seconds",
                                   "how long requests wait here for a worker", kPlaneBounds);
  plane_send_ =
      metrics.histogram("dynamo_request_plane_send_seconds",
                        "from sending a request to the worker's word that it has it", kPlaneBounds);
  plane_first_ = metrics.histogram("dynamo_request_plane_roundtrip_ttft_seconds",
                                   "from sending a request to its first token", kFirstBounds);
  plane_inflight_ = metrics.gauge("dynamo_request_plane_inflight_requests",
                                  "requests sent to workers and not ended");
  loop_delay_ = metrics.histogram(prefix + "_event_loop_delay_seconds",
                                  "how late a timer of each 100 ms comes", kLoopBounds);
  loop_stalls_ =
      metrics.counter(prefix + "_event_loop_stall_total", "timers that came more than 50 ms late");
}

void RequestMeters::prepared(Duration took) const {
  durations_[static_cast<size_t>(WorkStage::kPreprocess)][0].observe(seconds(took));
}

void RequestMeters::enter(StagePlace& place, WorkStage stage, WorkPhase phase,
                          TimePoint now) const {
  quit_stage(place);
  place.stage = stage;
  place.phase = phase;
  place.since = now;
  requests(stage, phase).add(1);
}

void RequestMeters::quit_stage(StagePlace& place) const {
  if (place.stage != WorkStage::kNone) {
    requests(place.stage, place.phase).add(-1);
    place.stage = WorkStage::kNone;
  }
}

void RequestMeters::step(StagePlace& place, telemetry::Step step, TimePoint now, bool split) const {
  const auto observe = [&] {
    durations_[static_cast<size_t>(place.stage)][static_cast<size_t>(place.phase)].observe(
        seconds(now - place.since));
  };
  switch (step) {
    case telemetry::Step::kQueued:
      enter(place, WorkStage::kRoute, WorkPhase::kNone, now);
      break;
    case telemetry::Step::kRouted: {
      const bool waited = place.stage == WorkStage::kRoute;
      const Duration wait = waited ? now - place.since : Duration::zero();
      durations_[static_cast<size_t>(WorkStage::kRoute)][0].observe(seconds(wait));
      plane_queue_.observe(seconds(wait));
      quit_stage(place);
      break;
    }
    case telemetry::Step::kPrefill:
      enter(place, WorkStage::kDispatch, WorkPhase::kPrefill, now);
      break;
    case telemetry::Step::kHandedOver:
      if (place.stage == WorkStage::kDispatch) {
        observe();
      }
      quit_stage(place);
      break;
    case telemetry::Step::kSubmitted:
      enter(place, WorkStage::kDispatch, split ? WorkPhase::kDecode : WorkPhase::kAggregated, now);
      if (!std::exchange(place.at_worker, true)) {
        plane_inflight_.add(1);
      }
      break;
    case telemetry::Step::kFirstToken:
      if (place.stage == WorkStage::kDispatch) {
        observe();
        roundtrips_[static_cast<size_t>(place.phase)].observe(seconds(now - place.since));
        plane_first_.observe(seconds(now - place.since));
      }
      quit_stage(place);
      break;
    case telemetry::Step::kLost:
      leave(place);
      break;
    case telemetry::Step::kPrepared:
    case telemetry::Step::kEnded:
      break;
  }
}

void RequestMeters::accepted(const StagePlace& place, TimePoint now) const {
  if (place.stage == WorkStage::kDispatch) {
    plane_send_.observe(seconds(now - place.since));
  }
}

void RequestMeters::leave(StagePlace& place) const {
  quit_stage(place);
  if (std::exchange(place.at_worker, false)) {
    plane_inflight_.add(-1);
  }
}

void RequestMeters::loop_was_late(Duration by) const {
  loop_delay_.observe(seconds(by));
  if (by > kStall) {
    loop_stalls_.add();
  }
}

}  // namespace stator::frontend
