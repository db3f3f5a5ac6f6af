// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/configurator/serving_point.h"
#include "stator/core/result.h"

namespace stator::configurator {

/// What is to be served, on what, how fast.
struct Goal {
  perf::EngineSpec engine;  ///< its parallelism is what is searched
  Workload work;
  uint32_t gpus = 8;
  double ttft_ms = 1000;  ///< at most
  double itl_ms = 40;     ///< at most
  uint32_t batch_max = 512;
  uint32_t best = 5;  ///< how many to return
  std::shared_ptr<const perf::OperatorDatabase> database;
};

/// One side of a deployment: engines that are alike.
struct EngineChoice {
  perf::Parallelism parallel;
  uint32_t workers = 1;        ///< in one replica
  uint32_t batch = 1;          ///< requests at once per rank of attention
  double tokens_per_pass = 0;  ///< max_num_batched_tokens
  double kv_tokens_max = 0;    ///< of one rank of attention
  double memory_bytes = 0;     ///< on the fullest GPU, with its batch
  perf::Provenance provenance = perf::Provenance::kRoofline;
};

struct Candidate {
  Mode mode = Mode::kAggregated;
  EngineChoice prefill, decode;  ///< the same engine where nothing is disaggregated
  ServingPoint point;            ///< of one replica
  uint32_t replicas = 1;
  /// Output tokens per second and GPU of all GPUs that were given, those left over included.
  double cluster_tokens_per_s_per_gpu = 0;
  bool fits = true;  ///< meets both goals
};

struct SearchResult {
  uint64_t considered = 0;      ///< configurations decided on, those cut off by a bound included
  uint64_t evaluated = 0;       ///< whose times were computed
  std::vector<Candidate> best;  ///< by yield, one per way to cut the engines; closest if none fits
  std::vector<Candidate> pareto;  ///< no other has more per user and per GPU
  bool goal_met = false;
  std::string binding_limit;      ///< empty, "memory", "ttft", "itl" or "ttft and itl"
  std::string explanation;        ///< of an unmet goal
  std::vector<std::string> gaps;  ///< operators that the database does not cover
};

/// Tries every way to cut the model over the GPUs, every batch, aggregated and disaggregated with
/// every mix of engines, and prunes by memory and by latencies that only grow with the batch.
/// kInvalidArgument for a goal that makes no sense.
Result<SearchResult> search(const Goal& goal);

/// Those that no other beats in both x and y. O(n log n); `points` are (x, y). Indices by falling
/// x.
std::vector<size_t> pareto_front(const std::vector<std::pair<double, double>>& points);

/// The ways to cut the model, at most `gpus` GPUs per engine.
std::vector<perf::Parallelism> enumerate_parallelism(const perf::EngineSpec& engine, uint32_t gpus);

}  // namespace stator::configurator
