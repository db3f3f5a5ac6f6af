// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/planner/engine_timing.h"
#include "stator/planner/inputs.h"
#include "stator/planner/load_rules.h"
#include "stator/planner/mpc.h"
#include "stator/planner/planner_config.h"
#include "stator/planner/warm_start.h"

namespace stator::planner {

/// Decides how many workers a fleet should have. A pure core: no clock, no I/O; the same inputs in
/// the same order give the same decisions, byte for byte.
///
///   STATOR_TRY(auto core, PlannerCore::create(config, timing));
///   const Decision decision = core->tick(inputs);
///
/// Measurements that cannot be right (not a number, negative, a clock that jumped, workers that do
/// not add up) give no decision, with the reason.
class PlannerCore {
 public:
  /// kInvalidArgument as validate() says. `timing` outlives the core.
  static Result<std::unique_ptr<PlannerCore>> create(const PlannerConfig& config,
                                                     const perf::TimingModel& timing);
  Decision tick(const Inputs& inputs);
  /// The same in two steps, for whoever asks plugins about the first before the second:
  /// `inputs.opinions` are not looked at until then.
  Decision propose(const Inputs& inputs);
  /// Once after each propose(): plugins, budgets, power.
  void finish(const Inputs& inputs, Decision& decision);
  const PlannerConfig& config() const { return config_; }
  /// Seconds between two ticks.
  double interval_s() const;

 private:
  PlannerCore(const PlannerConfig& config, const perf::TimingModel& timing);
  std::string find_fault(const Inputs& inputs) const;
  void learn(const Inputs& inputs);
  void plan_throughput(const Inputs& inputs, Decision& decision);
  void plan_load(const Inputs& inputs, Decision& decision);
  void plan_prompts(const Inputs& inputs, Decision& decision);
  void plan_idle(const Inputs& inputs, Decision& decision);
  void hear(const Inputs& inputs, Decision& decision) const;
  void clamp(const Inputs& inputs, Decision& decision) const;
  void limit_power(const Inputs& inputs, PairSize least, Decision& decision) const;

  PlannerConfig config_;
  const EngineTiming engine_;
  std::unique_ptr<ModelPredictive> mpc_;  // of policy mpc
  LoadPredictor load_;
  LoadMeans means_;
  double last_s_ = -1;
  double window_s_ = 0, window_requests_ = 0, window_input_ = 0, window_output_ = 0;
  double idle_s_ = 0;
  bool proposed_ = false;                // the last propose() had what it needs
  double prompts_smaller_since_s_ = -1;  // of mpc: since when fewer prefill workers would do
  std::optional<uint32_t> lower_bound_;  // of the reference: what the forecast asks for
};

/// Decisions that were made, to be made again: one line of JSON per tick, the configuration's text
/// first.
struct JournalCheck {
  uint64_t ticks = 0;
  uint64_t differences = 0;
  std::string first_difference;  ///< expected and got
};
/// One line.
std::string journal_line(const Inputs& inputs, const Decision& decision);
/// Replays lines through `core`; `before` is given the inputs of each tick first (what the step
/// model had learned by then). kInvalidArgument names the line.
Result<JournalCheck> replay_journal(std::string_view lines, PlannerCore& core,
                                    const std::function<void(const Inputs&)>& before = {});

}  // namespace stator::planner
