// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stator/lab/simulator/distribution.h"
#include "stator/lab/simulator/timeline.h"

namespace stator::simulator {

/// Bounds a request must meet, all of them, to count for goodput; unset ones do not count.
struct Objectives {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;  ///< mean per request; not asked of answers of one token
  std::optional<double> e2e_ms;
  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }
};

/// One worker's share.
struct WorkerReport {
  uint64_t requests = 0;  ///< it completed; of a prefill worker, prompts
  uint64_t input_tokens = 0;
  uint64_t cached_tokens = 0;  ///< of those, at admission
  uint64_t output_tokens = 0;
  uint64_t passes = 0;        ///< of all its ranks
  uint64_t dummy_passes = 0;  ///< of ranks without work, beside those of others
  uint64_t preemptions = 0;
  double busy_ms = 0;  ///< mean of its ranks
};

/// What a simulation found. Field names, units and meanings of the JSON follow NVIDIA Dynamo's
/// replay, so that its tools can read it; docs/reference/simulation.md lists them.
struct Report {
  std::string router;
  std::string engine = "vllm";
  uint32_t workers = 0;  ///< that decode
  uint32_t prefill_workers = 0;
  uint32_t gpus_per_worker = 1;
  uint32_t dp_size = 1;  ///< ranks per worker
  uint64_t seed = 0;

  uint64_t requests = 0;  ///< that arrived
  uint64_t completed = 0;
  uint64_t rejected = 0;    ///< too large for an engine
  uint64_t unroutable = 0;  ///< nobody could take them
  uint64_t shed = 0;        ///< all workers were too busy, and the queue full or too slow
  uint64_t lost = 0;        ///< with their workers
  uint64_t migrated = 0;    ///< lost a worker and went on at another
  uint64_t worker_failures = 0;
  uint64_t input_tokens = 0;
  uint64_t output_tokens = 0;
  double duration_ms = 0;  ///< virtual: first arrival to last token
  double wall_time_ms = 0;
  double prefill_worker_seconds = 0;
  double decode_worker_seconds = 0;

  double cached_ratio = 0;        ///< of prompt tokens, over all admissions
  double host_cached_ratio = 0;   ///< of those, from host memory
  uint64_t offloaded_blocks = 0;  ///< copied to host memory
  double first_cached_ratio = 0;  ///< of prompt tokens, over first admissions
  uint64_t passes = 0;
  uint64_t dummy_passes = 0;
  uint64_t preemptions = 0;
  uint64_t waiting_max = 0;  ///< requests waiting in engines, all workers together

  Summary ttft_ms, ttst_ms, e2e_ms, queue_ms;
  Summary tpot_ms;               ///< per request, its mean time per further token (AIPerf's ITL)
  Summary itl_ms;                ///< per gap between two tokens, all requests pooled
  Summary user_rate;             ///< tokens per second, per gap
  Summary request_rate;          ///< the same per request
  std::optional<uint64_t> good;  ///< requests that met the objectives
  uint64_t good_output_tokens = 0;
  std::vector<WorkerReport> per_worker;

  // For plots; not in the JSON.
  std::vector<double> ttft_curve, itl_curve, tpot_curve, e2e_curve;  ///< Distribution::curve(), ms
  std::vector<TimelinePoint> timeline;

  uint64_t failed() const { return requests - completed; }
  double requests_per_s() const;
  double tokens_per_s(uint64_t tokens) const;
};

/// One JSON object, pretty. Equal inputs give equal bytes, but for wall_time_ms and what derives
/// from it, which stand last.
std::string render_json(const Report& report);
/// A table for a terminal, in the style of AIPerf.
std::string render_table(const Report& report);

/// One figure by which runs are compared.
struct Figure {
  std::string name;  ///< as in the JSON
  double value = 0;
};
/// Those that matter most, always the same in the same order.
std::vector<Figure> key_figures(const Report& report);

}  // namespace stator::simulator
