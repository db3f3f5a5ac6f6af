// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stator/core/random.h"
#include "stator/planner/arrival_rate.h"
#include "stator/planner/engine_timing.h"
#include "stator/planner/fleet_model.h"
#include "stator/planner/inputs.h"
#include "stator/planner/planner_config.h"
#include "stator/planner/recent_requests.h"
#include "stator/planner/rules_shadow.h"

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
  ModelPredictive(const PlannerConfig& config, const perf::TimingModel& timing,
                  const EngineTiming& engine);
  /// `inputs` were checked. Fills reason, text, estimates, alternatives and the size wanted.
  void decide(const Inputs& inputs, Decision& decision);

 private:
  struct Outlook {
    std::vector<std::vector<ModelRequest>> paths;
    double from_s = 0, horizon_s = 0;  ///< what comes between counts: new workers are there
    double rate = 0, output_residual = 0;
    double high_rate = 0;  ///< one standard deviation above
  };
  void learn(const Inputs& inputs);
  Outlook look_ahead(const Inputs& inputs);
  uint32_t fewest() const;
  uint32_t affordable(const Inputs& inputs) const;
  std::vector<uint32_t> candidates(uint32_t current, const Outlook& outlook);
  static void smooth(const Outlook& outlook, std::vector<Alternative>& all);
  const Alternative& choose(uint32_t current, const Outlook& outlook,
                            const std::vector<Alternative>& all) const;
  Alternative judge(const Inputs& inputs, const Outlook& outlook, uint32_t workers);
  uint32_t settle(const Inputs& inputs, uint32_t wanted, bool urgent, Decision& decision);

  const PlannerConfig config_;
  const EngineTiming& engine_;
  FleetModel model_;
  ArrivalRate rate_;
  RecentRequests recent_;
  double observed_ = 0, expected_ = 0;  // misses lately, and what the model said of them
  double correction_ = 1;               // of what the model says: what it was off by
  double last_miss_ratio_ = 0;          // that was expected of the present size, corrected
  double capacity_ = 0;                 // requests per second of one engine within the goals
  double settled_s_ = 0;                // since when the fleet is as it is
  uint32_t filled_ = 0;                 // engines that a rate above the expected fills
  double larger_since_s_ = -1;          // since when more workers are wanted; -1: they are not
  uint32_t larger_least_ = 0;           // the smallest of those sizes
  double smaller_since_s_ = -1;         // since when fewer workers would do; -1: they would not
  uint32_t smaller_most_ = 0;           // the largest of those sizes
  double started_at_s_ = -1e18;         // when workers were last added
  std::unique_ptr<RulesShadow> rules_;  // null: no limit
  double spent_ = 0;                    // workers × seconds
  uint32_t size_ = 0;                   // that was decided last
  uint32_t most_ = 0;                   // that can be afforded
};

}  // namespace stator::planner
