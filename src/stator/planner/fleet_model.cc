// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/fleet_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "stator/core/random.h"

namespace stator::planner {
namespace {

/// Share of time in prompts is a mean over about so many seconds.
constexpr double kShareWindow = 15;
/// A new worker's cache is as good as the others' after so many requests.
constexpr double kWarmRequests = 24;
constexpr double kShareMax = 0.9;

}  // namespace

size_t FleetModel::choose(double now, uint64_t draw) const {
  const uint64_t count = workers_.size();
  const uint64_t first = draw % count, second = (draw >> 32U) % count;
  const auto score = [&](size_t index) {
    // Who is ready sooner, then who has fewer: a sequence more costs others a little.
    const Worker& w = workers_[index];
    return std::max({w.free, w.ready, now}) - now + 0.002 * static_cast<double>(w.ends.size());
  };
  return score(second) < score(first) ? second : first;
}

void FleetModel::expire(Worker& w, double now) {
  while (!w.ends.empty() && w.ends.front().first <= now) {
    w.kv_tokens -= w.ends.front().second;
    std::ranges::pop_heap(w.ends, std::greater<>());
    w.ends.pop_back();
  }
}

void FleetModel::serve(Worker& w, const ModelRequest& request, const ModelGoals& goals,
                       ModelOutcome& outcome) {
  double start = std::max({w.free, w.ready, request.at_s});
  expire(w, start);
  const double length = request.input_tokens + request.output_tokens / 2;
  while (!w.ends.empty() && w.kv_tokens + length > engine_.kv_tokens_max()) {
    start = std::max(start, w.ends.front().first);  // it waits for blocks
    expire(w, start);
  }
  const auto running = static_cast<double>(w.ends.size());
  const double warm = w.is_new ? std::min(1.0, w.served / kWarmRequests) : 1;
  const double fresh = std::max(1.0, request.input_tokens * (1 - goals.kv_hit_rate * warm));
  const double drain_s =
      engine_.drain_ms(fresh, goals.max_num_batched_tokens, running, w.kv_tokens) * 1e-3;
  const double step_s = engine_.step_ms(0, running + 1, w.kv_tokens + length) * 1e-3;
  // It joins at the next pass, on average half a step from now.
  const double first = start + drain_s + (running > 0 ? step_s / 2 : 0);
  const double decay = std::exp(-(start - w.share_at) / kShareWindow);
  w.prompt_share = w.prompt_share * std::min(1.0, decay) + drain_s / kShareWindow;
  w.share_at = start;
  const double itl_s = step_s / (1 - std::min(kShareMax, w.prompt_share));
  w.free = start + drain_s;
  w.kv_tokens += length;
  w.ends.emplace_back(first + request.output_tokens * itl_s, length);
  std::ranges::push_heap(w.ends, std::greater<>());
  ++w.served;
  const double ttft_ms = (first - request.at_s) * 1e3, itl_ms = itl_s * 1e3;
  outcome.requests += 1;
  outcome.misses += ttft_ms > goals.ttft_ms || itl_ms > goals.itl_ms ? 1 : 0;
  outcome.ttft_ms.push_back(static_cast<float>(ttft_ms));
  outcome.itl_ms.push_back(static_cast<float>(itl_ms));
}

void FleetModel::run(std::span<const ModelWorker> workers, std::span<const ModelRequest> requests,
                     const ModelGoals& goals, ModelOutcome& outcome) {
  workers_.resize(workers.size());
  const double length = requests.empty() ? 1 : requests.front().input_tokens;
  for (size_t i = 0; i < workers.size(); ++i) {
    Worker& w = workers_[i];
    w.ends.clear();
    w.ready = workers[i].ready_s;
    w.free = workers[i].busy_s;
    w.kv_tokens = workers[i].running * length;
    w.prompt_share = w.share_at = w.served = 0;
    w.is_new = workers[i].is_new;
    // Sequences that run already end evenly over the next seconds.
    const double each = engine_.step_ms(0, workers[i].running, w.kv_tokens) * 1e-3 * 200;
    for (double k = 0; k < workers[i].running; ++k) {
      w.ends.emplace_back((k + 1) / workers[i].running * each, length);
    }
    std::ranges::make_heap(w.ends, std::greater<>());
  }
  if (workers_.empty()) {
    outcome.requests += static_cast<double>(requests.size());
    outcome.misses += static_cast<double>(requests.size());
    return;
  }
  uint64_t index = 0;
  for (const ModelRequest& request : requests) {
    size_t chosen = choose(request.at_s, mix64(++index));
    if (workers_[chosen].ready > request.at_s) {  // not to one that starts, if another is there
      for (size_t i = 0; i < workers_.size(); ++i) {
        chosen = workers_[i].ready < workers_[chosen].ready ? i : chosen;
      }
    }
    serve(workers_[chosen], request, goals, outcome);
  }
}

}  // namespace stator::planner
