// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "stator/core/random.h"
#include "stator/planner/engine_timing.h"
#include "stator/planner/fleet_model.h"
#include "stator/planner/inputs.h"
#include "stator/planner/planner_config.h"

namespace stator::planner {

/// Chooses the size of a fleet by simulating the next minutes: sampled paths of what may come,
/// the same for every candidate size, each with its start-ups, drains and cold caches; the size
/// wins that costs least in GPU time and missed requests together.
///
/// I1  The same inputs in the same order give the same decisions.
/// I2  A fleet shrinks only if smaller sizes have won for `hold` seconds without a break, and
///     never while a worker starts.
class ModelPredictive {
 public:
  ModelPredictive(const PlannerConfig& config, const EngineTiming& engine);
  /// `inputs` were checked. Fills reason, text, estimates, alternatives and the size wanted.
  void decide(const Inputs& inputs, Decision& decision);

 private:
  struct Outlook {
    std::vector<std::vector<ModelRequest>> paths;
    double horizon_s = 0;
    double rate = 0;
  };
  void learn(const Inputs& inputs);
  double recent_s() const;
  double rate_now() const;
  Outlook look_ahead();
  std::vector<ModelRequest> sample_path(double rate, double horizon_s, Random& random) const;
  std::vector<uint32_t> candidates(uint32_t current, double rate);
  const Alternative& choose(uint32_t current, const Outlook& outlook,
                            const std::vector<Alternative>& all) const;
  Alternative judge(const Inputs& inputs, const Outlook& outlook, uint32_t workers);
  uint32_t settle(const Inputs& inputs, uint32_t wanted, bool urgent, Decision& decision);

  const PlannerConfig config_;
  const EngineTiming& engine_;
  FleetModel model_;
  std::deque<std::pair<double, double>> windows_;  // duration, requests; the last five minutes
  std::deque<double> rates_;                       // of about a minute each, for how much they vary
  std::vector<RequestLength> lengths_;             // a ring of recent ones
  size_t next_length_ = 0;
  double hit_rate_ = 0, mean_input_ = 0, mean_output_ = 0;
  double minute_s_ = 0, minute_requests_ = 0;
  double observed_ = 0, expected_ = 0;  // misses lately, and what the model said of them
  double last_miss_ratio_ = 0;          // that was expected of the present size
  double capacity_ = 0;                 // requests per second of one engine within the goals
  uint64_t ticks_ = 0;
  uint32_t larger_ticks_ = 0;    // in a row that wanted more workers
  double smaller_since_s_ = -1;  // since when fewer workers would do; -1: they would not
  uint32_t smaller_most_ = 0;    // the largest of those sizes
  double started_at_s_ = -1e18;  // when workers were last added
};

}  // namespace stator::planner
