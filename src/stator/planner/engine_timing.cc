// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/engine_timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stator::planner {
namespace {

constexpr double kHitMax = 0.95;
constexpr double kDense = 128;  // candidates

uint64_t whole(double value) {
  return static_cast<uint64_t>(std::max(0.0, std::round(value)));
}

/// All integers from 1 to `most`, or 128 evenly spaced.
std::vector<double> candidates(double most) {
  std::vector<double> out;
  const double last = std::max(1.0, std::floor(most));
  const double count = std::min(last, kDense);
  for (double i = 0; i < count; ++i) {
    out.push_back(count < 2 ? 1 : std::round(1 + i * (last - 1) / (count - 1)));
  }
  return out;
}

void consider(const Capacity& candidate, Capacity& best) {
  const bool better = candidate.eligible != best.eligible
                          ? candidate.eligible
                          : candidate.requests_per_s > best.requests_per_s;
  if (best.batch == 0 || better) {
    best = candidate;
  }
}

double fresh(const CapacityQuery& query) {
  return std::max(
      1.0, std::ceil(query.input_tokens * (1 - std::clamp(query.kv_hit_rate, 0.0, kHitMax))));
}

}  // namespace

double EngineTiming::step_ms(double prefill_tokens, double decodes, double kv_tokens) const {
  perf::PassShape shape;
  if (prefill_tokens > 0) {
    shape.add_prompt(0, whole(prefill_tokens));
  }
  shape.decode_requests = static_cast<uint32_t>(whole(decodes));
  shape.context_tokens = whole(kv_tokens);
  shape.kv_tokens = whole(std::min(kv_tokens + prefill_tokens, kv_tokens_max_));
  shape.kv_tokens_max = std::max<uint64_t>(1, whole(kv_tokens_max_));
  return std::max(1e-6, timing_.prefill_ms(shape) + timing_.decode_ms(shape));
}

double EngineTiming::drain_ms(double tokens, double pass_tokens, double decodes,
                              double kv_tokens) const {
  if (!(tokens > 0)) {
    return 0;
  }
  const double full = std::floor(tokens / pass_tokens);
  const double tail = tokens - full * pass_tokens;
  return (full > 0 ? full * step_ms(pass_tokens, decodes, kv_tokens) : 0) +
         (tail > 0 ? step_ms(tail, decodes, kv_tokens) : 0);
}

Capacity find_capacity(const EngineTiming& engine, const CapacityQuery& q) {
  const double isl = fresh(q), osl = std::max(1.0, q.output_tokens);
  const double context = q.input_tokens + osl / 2;
  const double most =
      std::min({q.max_num_seqs, engine.kv_tokens_max() / context, q.max_num_batched_tokens - 1});
  Capacity best;
  for (const double b : candidates(most)) {
    // Every token that is answered brings its share of a prompt.
    const double p = std::ceil(b * q.accept_length * isl / osl);
    if (b > 1 && p > q.max_num_batched_tokens - b) {
      continue;
    }
    Capacity c{.batch = b};
    c.itl_ms =
        engine.step_ms(std::min(p, q.max_num_batched_tokens), b, b * context) / q.accept_length;
    c.ttft_ms = engine.drain_ms(p + isl, q.max_num_batched_tokens, b, b * context);
    c.requests_per_s = b / (osl * c.itl_ms) * 1e3;
    c.eligible = c.ttft_ms <= q.ttft_ms && c.itl_ms <= q.itl_ms;
    consider(c, best);
  }
  return best;
}

Capacity find_prefill_capacity(const EngineTiming& engine, const CapacityQuery& q) {
  const double isl = fresh(q);
  const double most =
      isl > q.max_num_batched_tokens ? 1 : std::min(q.max_num_seqs, q.max_num_batched_tokens / isl);
  Capacity best;
  for (const double b : candidates(most)) {
    Capacity c{.batch = b};
    c.ttft_ms = engine.drain_ms(b * isl, q.max_num_batched_tokens, 0, 0);
    c.requests_per_s = b / c.ttft_ms * 1e3;
    c.eligible = c.ttft_ms <= q.ttft_ms;
    consider(c, best);
  }
  return best;
}

Capacity find_decode_capacity(const EngineTiming& engine, const CapacityQuery& q) {
  const double osl = std::max(1.0, q.output_tokens);
  const double context = q.input_tokens + osl / 2;
  Capacity best;
  for (const double b : candidates(std::min(q.max_num_seqs, engine.kv_tokens_max() / context))) {
    Capacity c{.batch = b};
    c.itl_ms = engine.step_ms(0, b, b * context) / q.accept_length;
    c.requests_per_s = b / (osl * c.itl_ms) * 1e3;
    c.eligible = c.itl_ms <= q.itl_ms;
    consider(c, best);
  }
  return best;
}

}  // namespace stator::planner
