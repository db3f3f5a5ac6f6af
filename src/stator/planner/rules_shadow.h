// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "stator/perf/timing_model.h"
#include "stator/planner/engine_timing.h"
#include "stator/planner/fleet_model.h"
#include "stator/planner/inputs.h"
#include "stator/planner/planner_config.h"

namespace stator::planner {

class PlannerCore;

/// What the reference's rules would have spent on the same requests: they size a fleet of the model
/// that runs some time behind, when requests have ended and are known. What mpc may spend is
/// measured by that.
///
/// Bound: kWaitingMax requests that have not been submitted yet.
class RulesShadow {
 public:
  /// `timing` outlives the object.
  RulesShadow(const PlannerConfig& config, const perf::TimingModel& timing);
  ~RulesShadow();
  RulesShadow(const RulesShadow&) = delete;
  RulesShadow& operator=(const RulesShadow&) = delete;

  /// Whether the configuration lets the rules run at all.
  bool usable() const { return rules_ != nullptr; }
  /// `inputs` were checked. The first ones give the size to begin with.
  void observe(const Inputs& inputs);
  /// Workers × seconds since the first inputs, those that start or drain as well; the part that the
  /// fleet is behind is taken to be as its end.
  double worker_seconds(double now_s) const;
  /// Its size, meant over some minutes.
  double workers() const { return mean_; }
  uint32_t present() const { return expected_; }

  static constexpr size_t kWaitingMax = 65'536;

 private:
  void collect(const Traffic& traffic, double now_s);
  void step();
  void resize(uint32_t wanted);

  const PlannerConfig config_;
  EngineTiming engine_;
  std::unique_ptr<PlannerCore> rules_;
  FleetModel fleet_;
  ModelOutcome outcome_;
  std::deque<ModelRequest> waiting_;  // in the order of time
  double left_over_ = 0;              // of a request that stands for several
  double begin_s_ = -1;               // the first inputs
  double now_s_ = 0;                  // until when the fleet has run
  double spent_ = 0;
  double mean_ = 0;
  uint32_t expected_ = 0;
  Traffic means_;  // of the last requests
};

}  // namespace stator::planner
