// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/config.h"
#include "stator/engine/sim/sim_knobs.h"
#include "stator/lab/simulator/load_planner.h"

namespace stator::simulator {

/// What `stator sim` can be told besides how to route. describe() declares key, flag, limits and
/// help of each field; sim_setup.h turns it into what the parts take.
struct SimConfig {
  // The trace.
  std::string trace_format = "auto";
  uint32_t trace_block_tokens = 0;
  bool sort = false;
  uint64_t limit = 0;
  double arrival_speedup = 1;
  uint32_t concurrency = 0;

  // The fleet.
  uint32_t workers = 1;
  uint32_t prefill_workers = 0;
  uint32_t router_replicas = 1;
  uint32_t gpus_per_worker = 1;
  double link_gb_per_s = 64;
  bool shared_links = false;
  Duration startup_time{};
  std::string scale_at;
  std::string scale_prefill_at;
  std::string planner = "none";
  LoadPlannerConfig load_planner;

  // What goes wrong.
  std::string fail_at;
  Duration time_between_failures{};
  Duration restart_after = std::chrono::seconds(30);
  uint32_t migration_limit = 3;

  // Requests that are made up, when there is no trace.
  uint64_t requests = 0;
  std::string arrivals = "poisson";
  double rate = 1;
  double burstiness = 1;
  uint32_t burst = 8;
  Duration period = std::chrono::hours(24);
  double swing = 0.8;
  std::string input_distribution = "fixed";
  double input_tokens = 1024;
  double input_tokens_std = 0;
  std::string output_distribution = "fixed";
  double output_tokens = 128;
  double output_tokens_std = 0;
  std::string lengths_from;
  uint32_t prefix_tokens = 0;
  uint32_t prefix_groups = 1;
  double prefix_skew = 0;
  uint32_t turns = 1;
  std::string pause_distribution = "exponential";
  double pause_ms = 2000;
  double pause_ms_std = 0;
  uint32_t fan_out = 0;

  // Engines.
  uint32_t block_size = 64;
  uint32_t blocks = 16'384;
  uint32_t host_blocks = 0;
  uint32_t dp_size = 1;
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 8192;
  uint32_t max_model_len = 0;
  bool prefix_caching = true;
  bool chunked_prefill = true;
  bool preempt_oldest = false;
  engine::SimKnobs sim = {.timing = "polynomial"};

  // Of the run.
  double goal_ttft_ms = 0;  ///< 0 = no goal, as of all of them
  double goal_tpot_ms = 0;
  double goal_e2e_ms = 0;
  uint64_t seed = 42;
  bool naive = false;
  bool by_token = false;
  std::string report_json;
  std::string report_html;
  std::string per_request_jsonl;
  std::string emit_trace;
  std::string sweep_file;
  std::string sweep_csv;
  std::string sweep_halving;
  uint64_t sweep_first_requests = 1000;
  uint32_t threads = 0;
};

/// `config` outlives the schema.
void describe(ConfigSchema& schema, SimConfig& config);

}  // namespace stator::simulator
