// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/configure_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "stator/cli/sim_run.h"
#include "stator/lab/loadgen/trace_file.h"
#include "stator/lab/simulator/cluster.h"
#include "stator/lab/simulator/recorder.h"
#include "stator/lab/simulator/sim_setup.h"
#include "stator/lab/simulator/trace_format.h"
#include "stator/perf/engine_model_timing.h"

namespace stator::cli {
namespace {

constexpr uint32_t kBlockTokens = 64;
constexpr double kBlocksMax = 1U << 24;

Result<perf::EngineModel> model_of(const configurator::Goal& goal,
                                   const configurator::EngineChoice& choice) {
  perf::EngineSpec spec = goal.engine;
  spec.parallel = choice.parallel;
  return perf::EngineModel::create(spec, goal.database);
}

double percentile(std::vector<float>& values, double part) {
  if (values.empty()) {
    return 0;
  }
  const auto at =
      static_cast<ptrdiff_t>(std::lround(part * static_cast<double>(values.size() - 1)));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<size_t>(at)];
}

Result<json::Value> simulate(const configurator::Goal& goal,
                             const configurator::Candidate& candidate, const std::string& path) {
  const bool split = candidate.mode == configurator::Mode::kDisaggregated;
  STATOR_TRY(perf::EngineModel decode, model_of(goal, candidate.decode));
  STATOR_TRY(perf::EngineModel prefill,
             model_of(goal, split ? candidate.prefill : candidate.decode));
  const double kv_bytes = decode.kv_bytes_per_token();
  const perf::EngineModelTiming timing(std::move(prefill), std::move(decode));
  simulator::SimConfig config;
  router::RouterConfig router;
  router.mode = "kv";
  config.sort = true;
  // Ranks of data-parallel attention have schedulers and blocks of their own: workers, here.
  config.workers = candidate.replicas * candidate.decode.workers * candidate.decode.parallel.dp;
  config.prefill_workers =
      split ? candidate.replicas * candidate.prefill.workers * candidate.prefill.parallel.dp : 0;
  config.block_size = kBlockTokens;
  config.blocks = static_cast<uint32_t>(
      std::clamp(candidate.decode.kv_tokens_max / kBlockTokens, 16.0, kBlocksMax));
  config.max_num_seqs = std::max(1U, candidate.decode.batch);
  config.max_num_batched_tokens =
      static_cast<uint32_t>(std::clamp(candidate.decode.tokens_per_pass, 512.0, 65'536.0));
  STATOR_TRY(simulator::ClusterConfig fleet, simulator::make_cluster_config(config, router));
  fleet.handoff_bytes_per_token = split ? kv_bytes : 0;
  STATOR_TRY(const auto file, loadgen::open_trace_file(path));
  STATOR_TRY(const auto trace,
             simulator::open_trace(*file, simulator::make_trace_options(config, path)));
  STATOR_TRY(const auto cluster, simulator::Cluster::create(fleet, timing));
  std::vector<float> ttft, itl;
  uint64_t requests = 0, met = 0, tokens = 0;
  simulator::Recorder recorder(
      cluster->worker_count(), {}, [&](const simulator::RequestRecord& record) {
        ++requests;
        if (record.status != simulator::RequestStatus::kCompleted) {
          return;
        }
        const auto ms = [](TimePoint from, TimePoint to) {
          return std::chrono::duration<double, std::milli>(to - from).count();
        };
        const double first = ms(record.arrival, record.first_token);
        const double each = record.output_tokens > 1 ? ms(record.first_token, record.last_token) /
                                                           (record.output_tokens - 1)
                                                     : 0;
        tokens += record.output_tokens;
        ttft.push_back(static_cast<float>(first));
        itl.push_back(static_cast<float>(each));
        met += first <= goal.ttft_ms && each <= goal.itl_ms ? 1 : 0;
      });
  STATOR_CHECK(cluster->run(*trace, recorder));
  if (requests == 0) {
    return Error(Code::kInvalidArgument, fmt::format("--trace '{}' has no requests", path));
  }
  const double seconds = std::chrono::duration<double>(cluster->now().time_since_epoch()).count();
  const double gpus = double{1} * candidate.replicas * candidate.point.gpus;
  json::Value out = json::Value::object();
  out["requests"] = requests;
  out["goals_met"] = static_cast<double>(met) / static_cast<double>(requests);
  out["ttft_ms_p50"] = percentile(ttft, 0.5);
  out["ttft_ms_p95"] = percentile(ttft, 0.95);
  out["itl_ms_p50"] = percentile(itl, 0.5);
  out["itl_ms_p95"] = percentile(itl, 0.95);
  out["tokens_per_s_per_gpu"] =
      seconds > 0 && gpus > 0 ? static_cast<double>(tokens) / seconds / gpus : 0;
  return out;
}

}  // namespace

Result<json::Value> simulate_shortlist(const configurator::Goal& goal,
                                       const configurator::SearchResult& result,
                                       const std::string& trace) {
  json::Value out = json::Value::array();
  for (const configurator::Candidate& candidate : result.best) {
    STATOR_TRY(json::Value one, simulate(goal, candidate, trace), "--trace");
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace stator::cli
