// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/observation.h"

#include <algorithm>
#include <cmath>

namespace stator::scaling {
namespace {

planner::PoolState pool_of(const Observation& seen, bool prompts, std::optional<uint32_t> wanted) {
  planner::PoolState pool;
  for (const WorkerLoad& load : seen.loads) {
    if (load.computes_prompts == prompts) {
      pool.engines.push_back({.id = load.worker,
                              .queued_prefill_tokens = load.queued_prefill_tokens,
                              .running = load.running,
                              .decode_kv_tokens = load.decode_kv_tokens});
    }
  }
  const auto ready = prompts ? seen.prefill_ready : seen.decode_ready;
  pool.ready = ready.value_or(static_cast<uint32_t>(pool.engines.size()));
  pool.expected = wanted.value_or(pool.ready);
  pool.draining = pool.ready > pool.expected ? pool.ready - pool.expected : 0;
  pool.ready = std::min(pool.ready, pool.expected);
  if (pool.engines.size() > pool.ready) {
    pool.engines.resize(pool.ready);
  }
  return pool;
}

}  // namespace

planner::Inputs InputBuilder::build(double now_s, const Observation& seen,
                                    std::optional<uint32_t> prefill,
                                    std::optional<uint32_t> decode) {
  planner::Inputs inputs;
  inputs.now_s = now_s;
  inputs.broken = seen.broken;
  inputs.prefill = pool_of(seen, true, prefill);
  inputs.decode = pool_of(seen, false, decode);
  inputs.decode.queued = seen.queued;
  if (!seen.window || !seen.broken.empty()) {
    return inputs;
  }
  const WindowSums& w = *seen.window;
  const auto mean = [](double sum, double count, double before) {
    return count > 0 ? sum / count : before;
  };
  Observed& o = observed_;
  const double requests = std::max(w.started, w.completed);
  o.requests_per_s = seen.window_s > 0 ? requests / seen.window_s : 0;
  o.ttft_ms = mean(w.ttft_s * 1e3, w.ttft_count, 0);
  o.itl_ms = mean(w.itl_s * 1e3, w.itl_count, 0);
  o.duration_s = mean(w.duration_s, w.duration_count, 0);
  o.input_tokens = mean(w.input_tokens, w.input_count, o.input_tokens);
  o.output_tokens = mean(w.output_tokens, w.output_count, o.output_tokens);
  if (w.input_tokens > 0) {
    o.kv_hit_rate = std::clamp(w.cached_tokens / w.input_tokens, 0.0, 1.0);
  } else if (seen.hit_rate) {
    o.kv_hit_rate = std::clamp(*seen.hit_rate, 0.0, 1.0);
  }
  if (w.drafts > 0) {
    o.accept_length =
        std::clamp(1 + w.accepted_drafts / w.drafts, 1.0, 1.0 + double{1} * draft_tokens_);
  }
  const double ended = std::max(w.completed, w.ttft_count);
  const double late_itl = w.itl_count > 0 ? w.itl_late / w.itl_count : 0;
  const double late_ttft = w.ttft_count > 0 ? w.ttft_late / w.ttft_count : 0;
  // A request misses its goal for ITL by its mean: where most gaps are late, most requests are.
  const double missed = std::max(late_ttft, late_itl > 0.5 ? late_itl : 0) * ended;
  inputs.traffic = planner::Traffic{.duration_s = seen.window_s,
                                    .requests = requests,
                                    .input_tokens = o.input_tokens,
                                    .output_tokens = o.output_tokens,
                                    .kv_hit_rate = o.kv_hit_rate,
                                    .accept_length = o.accept_length,
                                    .ended = ended,
                                    .missed = std::min(missed, ended),
                                    .sample = {}};
  return inputs;
}

}  // namespace stator::scaling
