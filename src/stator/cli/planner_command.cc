// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/option_number.h"
#include "stator/app/planner_file.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/planner_commands.h"
#include "stator/cli/sim_run.h"
#include "stator/core/clock.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/lab/loadgen/trace_file.h"
#include "stator/lab/planning/dry_run.h"
#include "stator/lab/simulator/sim_setup.h"
#include "stator/lab/simulator/trace_format.h"
#include "stator/perf/calibrated_timing.h"
#include "stator/perf/timing_spec.h"

namespace stator::cli {
namespace {

/// What the options say, of engines as the simulation has them.
Result<planner::PlannerConfig> read_config(const Invocation& invocation,
                                           const simulator::SimConfig& engine) {
  return app::read_planner_config(
      invocation, {.max_num_batched_tokens = double{1} * engine.max_num_batched_tokens,
                   .max_num_seqs = double{1} * engine.max_num_seqs,
                   .max_kv_tokens = double{1} * engine.blocks * engine.block_size,
                   .block_size = double{1} * engine.block_size});
}

/// Of the options, or of the file of --planner-config.
std::string warm_up_trace(const Invocation& invocation) {
  app::PlannerFileFacts facts;
  planner::PlannerConfig unused;
  if (const std::string file = option_of(invocation, "--planner-config", ""); !file.empty()) {
    app::read_planner_file(file, unused, &facts).ignore("it was read before");
  }
  const std::string trace = option_of(invocation, "--warmup-trace", "");
  return trace.empty() ? facts.warmup_trace : trace;
}

Result<std::unique_ptr<SimRequests>> open_trace(const simulator::SimConfig& config,
                                                const std::string& path) {
  auto requests = std::make_unique<SimRequests>();
  STATOR_TRY(requests->file, loadgen::open_trace_file(path));
  STATOR_TRY(requests->source,
             simulator::open_trace(*requests->file, simulator::make_trace_options(config, path)));
  return requests;
}

struct DryRunPlan {
  SimSettings sim;
  planner::PlannerConfig planner;
  std::string trace;
  uint32_t workers = 0;  // at the beginning; 0: what the first minute needs
};

Result<planner::DryRunResult> run_one(const DryRunPlan& plan, const perf::TimingModel& timing,
                                      const planner::PlannerConfig& policy) {
  planner::DryRunConfig config{.planner = policy};
  STATOR_TRY(config.fleet, simulator::make_cluster_config(plan.sim.config, plan.sim.router));
  config.fleet.startup_time = Duration(std::llround(policy.start_up_s * 1e9));
  config.fleet.gpus_per_worker = policy.gpus_per_worker;
  config.fleet.workers =
      policy.policy == planner::PolicyKind::kStatic ? policy.static_workers : plan.workers;
  STATOR_TRY(const auto requests, open_trace(plan.sim.config, plan.trace));
  const SystemClock clock;
  return planner::dry_run(config, timing, *requests->source, &clock);
}

Status write_file(const std::string& path, std::string_view flag, std::string_view content) {
  if (path.empty()) {
    return {};
  }
  STATOR_TRY(OutputFile file, OutputFile::open(path), flag);
  file.write(content);
  STATOR_CHECK(file.close(), flag);
  return {};
}

Result<DryRunPlan> read_plan(const Invocation& invocation) {
  DryRunPlan plan;
  plan.trace = option_of(invocation, "--dry-run", "");
  plan.sim.config.sort = true;
  plan.sim.router.mode = "kv";
  STATOR_CHECK(
      read_number(invocation, "--arrival-speedup", 1e-6, 1e6, plan.sim.config.arrival_speedup));
  STATOR_CHECK(
      read_number<uint32_t>(invocation, "--block-size", 1, 65'536, plan.sim.config.block_size));
  STATOR_CHECK(
      read_number<uint32_t>(invocation, "--kv-blocks", 1, 1U << 30, plan.sim.config.blocks));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--workers", 0, 4096, plan.workers));
  const std::string timing = option_of(invocation, "--timing", "");
  plan.sim.config.sim.timing = timing.empty() ? plan.sim.config.sim.timing : timing;
  STATOR_TRY(plan.planner, read_config(invocation, plan.sim.config));
  STATOR_CHECK(warm_up(warm_up_trace(invocation), plan.sim.config.arrival_speedup, plan.planner));
  return plan;
}

Status run_dry_run(const Invocation& invocation) {
  STATOR_TRY(DryRunPlan plan, read_plan(invocation));
  STATOR_TRY(const auto timing,
             perf::make_timing(plan.sim.config.sim.timing, plan.sim.config.sim.linear));
  if (plan.workers == 0) {
    STATOR_TRY(const auto requests, open_trace(plan.sim.config, plan.trace), "--dry-run");
    STATOR_TRY(plan.workers, planner::initial_workers(plan.planner, *timing, *requests->source,
                                                      plan.sim.config.arrival_speedup));
  }
  std::vector<planner::DryRunResult> results;
  STATOR_TRY(auto first, run_one(plan, *timing, plan.planner), "--dry-run");
  results.push_back(std::move(first));
  std::string compare = option_of(invocation, "--compare", "");
  const std::string html = option_of(invocation, "--report-html", "");
  if (compare.empty() && !html.empty() && results.front().policy != "reference") {
    compare = "reference";
  }
  while (!compare.empty()) {
    const std::string name = compare.substr(0, compare.find(','));
    compare.erase(0, name.size() + 1);
    planner::PlannerConfig other = plan.planner;
    STATOR_CHECK(planner::parse_policy(name, other), "--compare");
    STATOR_TRY(auto result, run_one(plan, *timing, other), "--compare");
    results.push_back(std::move(result));
  }
  STATOR_CHECK(write_file(option_of(invocation, "--report-json", ""), "--report-json",
                          planner::render_json(plan.planner, results)));
  STATOR_CHECK(write_file(html, "--report-html", planner::render_html(plan.planner, results)));
  STATOR_CHECK(
      write_file(option_of(invocation, "--journal", ""), "--journal", results.front().journal));
  if (option_of(invocation, "--report-json", "") != "-" && html != "-") {
    print(invocation.options.contains("--json") ? planner::render_json(plan.planner, results)
                                                : planner::render_table(results));
  }
  return {};
}

/// Makes the decisions of a journal again.
Status run_replay(const Invocation& invocation) {
  simulator::SimConfig engine;
  STATOR_CHECK(read_number<uint32_t>(invocation, "--block-size", 1, 65'536, engine.block_size));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--kv-blocks", 1, 1U << 30, engine.blocks));
  STATOR_TRY(planner::PlannerConfig config, read_config(invocation, engine));
  STATOR_CHECK(read_number(invocation, "--arrival-speedup", 1e-6, 1e6, engine.arrival_speedup));
  STATOR_CHECK(warm_up(warm_up_trace(invocation), engine.arrival_speedup, config));
  STATOR_TRY(const std::string lines,
             io::read_file(option_of(invocation, "--replay", ""), 1ULL << 30), "--replay");
  if (!invocation.options.contains("--spend-limit")) {
    // `stator serve --planner` has another default: a live journal says it first.
    const auto head = json::parse(std::string_view(lines).substr(0, lines.find('\n')));
    config.spend_limit = head ? head->at("spend_limit").as_double().value_or(config.spend_limit)
                              : config.spend_limit;
  }
  const std::string spec = option_of(invocation, "--timing", "");
  STATOR_TRY(const auto timing,
             perf::make_timing(spec.empty() ? "polynomial" : spec, engine.sim.linear));
  perf::CalibratedTiming learned(*timing);  // as it was at each tick
  STATOR_TRY(const auto core, planner::PlannerCore::create(config, learned));
  const auto recall = [&learned](const planner::Inputs& inputs) {
    perf::CalibrationState state;
    if (inputs.calibration.size() == state.theta.size() + 1) {
      std::copy_n(inputs.calibration.begin(), state.theta.size(), state.theta.begin());
      state.passes = static_cast<uint64_t>(inputs.calibration.back());
      learned.set(state);
    }
  };
  STATOR_TRY(const planner::JournalCheck check, planner::replay_journal(lines, *core, recall),
             "--replay");
  print(fmt::format("{{\"ticks\":{},\"differences\":{}}}\n", check.ticks, check.differences));
  if (check.differences > 0) {
    return Error(Code::kInternal, "decisions differ: " + check.first_difference.substr(0, 2000));
  }
  return {};
}

}  // namespace

Status run_planner(Invocation& invocation) {
  if (invocation.options.contains("--dry-run")) {
    return run_dry_run(invocation);
  }
  if (invocation.options.contains("--replay")) {
    return run_replay(invocation);
  }
  if (invocation.options.contains("--global")) {
    return run_global_planner(invocation);
  }
  return app::run_live_planner(invocation,
                               [](const std::string& trace, planner::PlannerConfig& config) {
                                 return warm_up(trace, 1, config);
                               });
}

}  // namespace stator::cli
