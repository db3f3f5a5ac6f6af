// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/load_rules.h"

#include <algorithm>
#include <cmath>

namespace stator::planner {
namespace {

constexpr double kHitMax = 0.95;

/// Why no verdict is possible; empty if one is.
std::string_view guard(const PoolState& pool, const LoadMeans& means) {
  if (pool.engines.empty()) {
    return "no_fpm_data";
  }
  if (pool.expected != pool.ready) {
    return "scaling_in_progress";
  }
  if (pool.engines.size() != pool.ready) {
    return "worker_count_mismatch";
  }
  if (!(means.input_tokens > 0)) {
    return "insufficient_data";
  }
  return {};
}

struct Signal {
  bool up = true;
  bool down = true;
  double worst_ms = 0;
};

double grown(const PoolState& pool) {
  return pool.ready > 1 ? 1.0 * pool.ready / (pool.ready - 1) : 1;
}

/// TTFT; `shares_passes`: the engines decode as well, in the same passes.
Signal ttft_signal(const PoolState& pool, const LoadMeans& means, const EngineTiming& engine,
                   const PlannerConfig& config, bool shares_passes) {
  const double fresh = 1 - std::clamp(means.kv_hit_rate, 0.0, kHitMax);
  const double c = grown(pool), mbt = config.max_num_batched_tokens;
  const double sensitivity = config.scale_down_sensitivity / 100;
  Signal out;
  for (const EngineLoad& load : pool.engines) {
    const double n = shares_passes ? load.running : 0;
    const double kv = shares_passes ? load.decode_kv_tokens : 0;
    const double now =
        engine.drain_ms((load.queued_prefill_tokens + means.input_tokens) * fresh, mbt, n, kv);
    const double own = engine.drain_ms(means.input_tokens * fresh, mbt, n, kv);
    const double fewer = engine.drain_ms(
        (c * load.queued_prefill_tokens + means.input_tokens) * fresh, mbt, c * n, c * kv);
    const double budget = (config.ttft_ms - own) * sensitivity;
    out.up = out.up && now > config.ttft_ms;
    out.down = out.down && budget > 0 && fewer - own < budget;
    out.worst_ms = std::max(out.worst_ms, now);
  }
  return out;
}

/// ITL; `prefill` tokens share each pass.
Signal itl_signal(const PoolState& pool, const LoadMeans& means, const EngineTiming& engine,
                  const PlannerConfig& config, double prefill) {
  const double c = grown(pool), sensitivity = config.scale_down_sensitivity / 100;
  const double length = means.input_tokens + means.output_tokens / 2;
  Signal out;
  for (const EngineLoad& load : pool.engines) {
    const double now = engine.step_ms(prefill, load.running + 1, load.decode_kv_tokens + length) /
                       means.accept_length;
    const double fewer = engine.step_ms(c * prefill, c * load.running, c * load.decode_kv_tokens) /
                         means.accept_length;
    const double kv =
        std::floor(c * (load.decode_kv_tokens + (prefill > 0 ? load.queued_prefill_tokens : 0)));
    out.up = out.up && now > config.itl_ms;
    out.down = out.down && kv < config.max_kv_tokens && fewer < config.itl_ms * sensitivity;
    out.worst_ms = std::max(out.worst_ms, now);
  }
  return out;
}

LoadVerdict decide(const PoolState& pool, bool up, bool down) {
  LoadVerdict out;
  if (up) {
    out.change = 1;
    out.reason = "scale_up";
  } else if (pool.ready > 1 && down) {
    out.change = -1;
    out.reason = "scale_down";
  } else {
    out.reason = pool.ready > 1 ? "scale_down_refused_consolidation" : "no_change";
  }
  return out;
}

struct Thresholds {
  double up = 0, down = 0;
  bool up_at = false;    // at the threshold, too
  bool down_at = false;  // the same
};

/// Planner modes of the reference that need no model: any engine over goes up, all under go down.
Thresholds thresholds(const PlannerConfig& config, bool prompts) {
  switch (config.target) {
    case LoadTarget::kLatency:
      return prompts ? Thresholds{0.1, 0, true, true} : Thresholds{0.4, 0.1};
    case LoadTarget::kLoad:
      return prompts ? Thresholds{config.easy.prefill_up, config.easy.prefill_down, true, true}
                     : Thresholds{config.easy.decode_up / 100, config.easy.decode_down / 100, true,
                                  true};
    case LoadTarget::kSla:
    case LoadTarget::kThroughput:
      break;
  }
  return prompts ? Thresholds{1, 0.1, true} : Thresholds{1, 0.6};
}

/// `kind`: prompts only, decodes only, or both.
enum class PoolKind : uint8_t { kPrefill, kDecode, kBoth };

LoadVerdict judge_easily(const PoolState& pool, const PlannerConfig& config, PoolKind kind) {
  if (pool.engines.empty()) {
    return {.reason = "no_fpm_data"};
  }
  if (pool.expected != pool.ready) {
    return {.reason = "scaling_in_progress"};
  }
  const Thresholds limits = thresholds(config, kind == PoolKind::kPrefill);
  const bool raw = config.target == LoadTarget::kLoad;
  bool up = false, down = config.scale_down_sensitivity > 0;
  for (const EngineLoad& load : pool.engines) {
    double value = load.decode_kv_tokens / std::max(1.0, config.max_kv_tokens);
    if (kind == PoolKind::kPrefill) {
      value = load.queued_prefill_tokens / (raw ? 1 : std::max(1.0, config.context_length));
    } else if (kind == PoolKind::kBoth) {
      value += load.queued_prefill_tokens / std::max(1.0, config.max_kv_tokens);
    }
    up = up || (limits.up_at ? value >= limits.up : value > limits.up);
    down = down && (limits.down_at ? value <= limits.down : value < limits.down);
  }
  LoadVerdict out = decide(pool, up, down);
  out.reason = out.change == 0 ? "no_change" : out.reason;
  return out;
}

}  // namespace

LoadVerdict judge_prefill(const PoolState& pool, const LoadMeans& means, const EngineTiming& engine,
                          const PlannerConfig& config) {
  if (config.target != LoadTarget::kSla) {
    return judge_easily(pool, config, PoolKind::kPrefill);
  }
  if (const std::string_view why = guard(pool, means); !why.empty()) {
    return {.reason = why};
  }
  const Signal ttft = ttft_signal(pool, means, engine, config, false);
  LoadVerdict out = decide(pool, ttft.up, ttft.down && config.scale_down_sensitivity > 0);
  out.ttft_ms = ttft.worst_ms;
  return out;
}

LoadVerdict judge_decode(const PoolState& pool, const LoadMeans& means, const EngineTiming& engine,
                         const PlannerConfig& config) {
  if (config.target != LoadTarget::kSla) {
    return judge_easily(pool, config, PoolKind::kDecode);
  }
  if (const std::string_view why = guard(pool, means); !why.empty()) {
    return {.reason = why};
  }
  const Signal itl = itl_signal(pool, means, engine, config, 0);
  LoadVerdict out = decide(pool, itl.up, itl.down && config.scale_down_sensitivity > 0);
  out.itl_ms = itl.worst_ms;
  return out;
}

LoadVerdict judge_aggregated(const PoolState& pool, const LoadMeans& means,
                             const EngineTiming& engine, const PlannerConfig& config) {
  if (config.target != LoadTarget::kSla) {
    return judge_easily(pool, config, PoolKind::kBoth);
  }
  if (const std::string_view why = guard(pool, means); !why.empty()) {
    return {.reason = why};
  }
  double running = 0;
  for (const EngineLoad& load : pool.engines) {
    running += load.running;
  }
  // Every token that is answered brings its share of a prompt into the pass.
  const double prefill = running / static_cast<double>(pool.engines.size()) * means.input_tokens *
                         (1 - std::clamp(means.kv_hit_rate, 0.0, kHitMax)) /
                         std::max(1.0, means.output_tokens);
  const Signal ttft = ttft_signal(pool, means, engine, config, true);
  const Signal itl = itl_signal(pool, means, engine, config, prefill);
  LoadVerdict out =
      decide(pool, ttft.up || itl.up, ttft.down && itl.down && config.scale_down_sensitivity > 0);
  out.ttft_ms = ttft.worst_ms;
  out.itl_ms = itl.worst_ms;
  return out;
}

}  // namespace stator::planner
