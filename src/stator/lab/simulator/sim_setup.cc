// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/sim_setup.h"

#include <utility>

#include "stator/engine/core/scheduling_rules.h"
#include "stator/engine/sim/sim_runner.h"

namespace stator::simulator {

Result<ClusterConfig> make_cluster_config(const SimConfig& config,
                                          const router::RouterConfig& router) {
  ClusterConfig fleet;
  fleet.workers = config.workers;
  fleet.prefill_workers = config.prefill_workers;
  fleet.passes = config.naive      ? engine::SimPasses::kNaive
                 : config.by_token ? engine::SimPasses::kProduction
                                   : engine::SimPasses::kCompressed;
  fleet.router = router;
  fleet.router_replicas = config.router_replicas;
  fleet.seed = config.seed;
  fleet.arrival_speedup = config.arrival_speedup;
  fleet.concurrency = config.concurrency;
  fleet.handoff_bytes_per_token = config.sim.kv_bytes_per_token;
  fleet.handoff_bytes_per_second = config.link_gb_per_s * 1e9;
  fleet.gpus_per_worker = config.gpus_per_worker;
  fleet.shared_links = config.shared_links;
  fleet.startup_time = config.startup_time;
  fleet.time_between_failures = config.time_between_failures;
  fleet.restart_after = config.restart_after;
  fleet.migration_limit = config.migration_limit;
  STATOR_TRY(fleet.fail_at, parse_steps(config.fail_at, 1'000'000));
  engine::SimEngineConfig& engine = fleet.engine;
  engine.rules =
      engine::find_rules(config.sim.rules).value_or(engine.rules);  // checked by the schema
  engine.sglang = config.sim.sglang;
  STATOR_TRY(engine.draft_acceptance, engine::read_acceptance(config.sim.draft_acceptance));
  engine.block_size = config.block_size;
  engine.blocks = config.blocks;
  engine.host_blocks = config.host_blocks;
  engine.dp_size = config.dp_size;
  engine.host_link = config.sim.host_link();
  engine.max_num_seqs = config.max_num_seqs;
  engine.max_num_batched_tokens = config.max_num_batched_tokens;
  engine.max_model_len = config.max_model_len;
  engine.prefix_caching = config.prefix_caching;
  engine.chunked_prefill = config.chunked_prefill;
  engine.preemption =
      config.preempt_oldest ? engine::SimPreemption::kOldest : engine::SimPreemption::kNewest;
  engine.speedup = config.sim.speedup;
  engine.decode_speedup = config.sim.decode_speedup;
  return fleet;
}

Result<std::unique_ptr<Planner>> make_planner(const SimConfig& config) {
  constexpr uint32_t kWorkersMax = 1'000'000;
  STATOR_TRY(auto workers, parse_steps(config.scale_at, kWorkersMax));
  STATOR_TRY(auto prefill_workers, parse_steps(config.scale_prefill_at, kWorkersMax));
  if (!prefill_workers.empty() && config.prefill_workers == 0) {
    return Error(Code::kInvalidArgument,
                 "--scale-prefill-at changes the number of prefill workers: begin with some "
                 "(--prefill-workers)");
  }
  const bool scripted = !workers.empty() || !prefill_workers.empty();
  if (config.planner == "load") {
    return scripted ? Error(Code::kInvalidArgument,
                            "the fleet follows a script (--scale-at) or a planner, not both")
                    : make_load_planner(config.load_planner);
  }
  if (!scripted) {
    return nullptr;
  }
  return make_scripted_planner(std::move(prefill_workers), std::move(workers));
}

Objectives make_objectives(const SimConfig& config) {
  const auto goal = [](double bound) { return bound > 0 ? std::optional(bound) : std::nullopt; };
  return {.ttft_ms = goal(config.goal_ttft_ms),
          .tpot_ms = goal(config.goal_tpot_ms),
          .e2e_ms = goal(config.goal_e2e_ms)};
}

TraceOptions make_trace_options(const SimConfig& config, std::string name) {
  return {.name = std::move(name),
          .format = config.trace_format,
          .block_tokens = config.trace_block_tokens,
          .sort = config.sort};
}

WorkloadConfig make_workload_config(const SimConfig& config) {
  WorkloadConfig workload;
  workload.requests = config.requests;
  workload.arrivals = config.arrivals;
  workload.rate = config.rate;
  workload.burstiness = config.burstiness;
  workload.burst = config.burst;
  workload.period = config.period;
  workload.swing = config.swing;
  workload.input = {config.input_distribution, config.input_tokens, config.input_tokens_std};
  workload.output = {config.output_distribution, config.output_tokens, config.output_tokens_std};
  workload.pause = {config.pause_distribution, config.pause_ms, config.pause_ms_std};
  workload.prefix_tokens = config.prefix_tokens;
  workload.prefix_groups = config.prefix_groups;
  workload.prefix_skew = config.prefix_skew;
  workload.turns = config.turns;
  workload.fan_out = config.fan_out;
  if (config.trace_block_tokens > 0) {
    workload.block_tokens = config.trace_block_tokens;
  }
  workload.seed = config.seed;
  return workload;
}

}  // namespace stator::simulator
