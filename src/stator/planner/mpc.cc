// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/mpc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace stator::planner {
namespace {

constexpr double kMemory_s = 300;   // windows that are remembered
constexpr double kRecentTicks = 6;  // that the rate of now is taken from, a minute at most
constexpr size_t kRatesMax = 30;    // minutes
constexpr size_t kLengthsMax = 1024;
constexpr double kRequestsMax = 6000;  // of one path; longer ones are cut in time
/// Another size must be cheaper by this part of the cost.
constexpr double kClearlyCheaper = 0.03;
/// Misses that the model did not expect multiply those that it does, at most by this.
constexpr double kCorrectionMax = 10;

double quantile_of(std::vector<float>& values, double quantile) {
  if (values.empty()) {
    return 0;
  }
  const auto at =
      static_cast<ptrdiff_t>(std::round(static_cast<double>(values.size() - 1) * quantile));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<size_t>(at)];
}

/// Quantiles of the normal distribution at (k + ½)/n: Acklam's rational approximation of its centre
/// suffices, since few paths reach beyond.
double normal_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(std::min(p, 1 - p)));
  const double z = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) /
                           (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t);
  return p < 0.5 ? -z : z;  // Abramowitz, Stegun 26.2.23
}

double misses_of(uint32_t workers, const std::vector<Alternative>& all) {
  const auto found = std::ranges::find(all, workers, &Alternative::workers);
  return found == all.end() ? 1 : found->miss_ratio;
}

}  // namespace

ModelPredictive::ModelPredictive(const PlannerConfig& config, const EngineTiming& engine)
    : config_(config), engine_(engine), model_(engine) {}

void ModelPredictive::learn(const Inputs& inputs) {
  if (!inputs.traffic || !(inputs.traffic->duration_s > 0)) {
    return;
  }
  const Traffic& t = *inputs.traffic;
  // The model is held against what happened, over some minutes: both sums fade alike.
  const double fade = std::exp(-t.duration_s / kMemory_s);
  observed_ = observed_ * fade + t.missed;
  expected_ = expected_ * fade + last_miss_ratio_ * t.ended;
  windows_.emplace_back(t.duration_s, t.requests);
  double kept = std::accumulate(windows_.begin(), windows_.end(), 0.0,
                                [](double sum, const auto& w) { return sum + w.first; });
  while (windows_.size() > 1 && kept - windows_.front().first > kMemory_s) {
    kept -= windows_.front().first;
    windows_.pop_front();
  }
  minute_s_ += t.duration_s;
  minute_requests_ += t.requests;
  if (minute_s_ >= recent_s()) {
    rates_.push_back(minute_requests_ / minute_s_);
    minute_s_ = minute_requests_ = 0;
    if (rates_.size() > kRatesMax) {
      rates_.pop_front();
    }
  }
  for (const RequestLength& length : t.sample) {
    if (lengths_.size() < kLengthsMax) {
      lengths_.push_back(length);
    } else {
      lengths_[next_length_++ % kLengthsMax] = length;
    }
  }
  if (t.input_tokens > 0) {
    mean_input_ = t.input_tokens;
    mean_output_ = std::max(1.0, t.output_tokens);
    hit_rate_ = std::clamp(t.kv_hit_rate, 0.0, 0.95);
  }
}

double ModelPredictive::recent_s() const {
  return std::min(60.0, kRecentTicks * config_.mpc_interval_s);
}

double ModelPredictive::rate_now() const {
  double seconds = 0, requests = 0;
  for (auto it = windows_.rbegin(); it != windows_.rend() && seconds < recent_s(); ++it) {
    seconds += it->first;
    requests += it->second;
  }
  return seconds > 0 ? requests / seconds : 0;
}

std::vector<ModelRequest> ModelPredictive::sample_path(double rate, double horizon_s,
                                                       Random& random) const {
  std::vector<ModelRequest> out;
  double at = 0;
  while (rate > 0 && out.size() < static_cast<size_t>(kRequestsMax)) {
    at += -std::log(1 - random.uniform()) / rate;
    if (at > horizon_s) {
      break;
    }
    if (lengths_.empty()) {
      // Only means are known: lengths as wide as an exponential distribution.
      const double scale = -std::log(1 - random.uniform());
      out.push_back({at, std::max(1.0, mean_input_ * scale), std::max(1.0, mean_output_)});
    } else {
      const RequestLength& length = lengths_[random.below(lengths_.size())];
      out.push_back({at, length.input_tokens, length.output_tokens});
    }
  }
  return out;
}

ModelPredictive::Outlook ModelPredictive::look_ahead() {
  Outlook out;
  out.rate = rate_now();
  // How much the rate of one minute differs from that of the minute before, relative.
  double squares = 0, count = 0;
  for (size_t i = 1; i < rates_.size(); ++i) {
    if (rates_[i] > 0 && rates_[i - 1] > 0) {
      squares += std::pow(std::log(rates_[i] / rates_[i - 1]), 2);
      ++count;
    }
  }
  const double minutes = std::max(1.0, config_.start_up_s / recent_s());
  const double spread =
      std::min(0.6, (count > 2 ? std::sqrt(squares / count) : 0.15) * std::sqrt(minutes));
  out.horizon_s = std::clamp(config_.start_up_s + 60, 90.0, 300.0);
  if (out.rate * out.horizon_s > kRequestsMax) {
    out.horizon_s = kRequestsMax / out.rate;
  }
  Random random(mix64(config_.seed ^ mix64(ticks_)));
  for (uint32_t k = 0; k < config_.mpc_paths; ++k) {
    const double z = normal_quantile((k + 0.5) / config_.mpc_paths);
    out.paths.push_back(sample_path(out.rate * std::exp(spread * z), out.horizon_s, random));
  }
  return out;
}

std::vector<uint32_t> ModelPredictive::candidates(uint32_t current, double rate) {
  const Capacity capacity =
      find_capacity(engine_, {.input_tokens = mean_input_,
                              .output_tokens = mean_output_,
                              .kv_hit_rate = hit_rate_,
                              .ttft_ms = config_.ttft_ms,
                              .itl_ms = config_.itl_ms,
                              .max_num_batched_tokens = config_.max_num_batched_tokens,
                              .max_num_seqs = config_.max_num_seqs});
  capacity_ = capacity.requests_per_s;
  const double need =
      capacity.requests_per_s > 0 ? std::ceil(rate / capacity.requests_per_s) : current;
  std::set<uint32_t> out;
  const auto add = [&](double workers) {
    out.insert(static_cast<uint32_t>(
        std::clamp<double>(workers, std::max(1U, config_.min_workers), config_.max_workers)));
  };
  for (const double change : {-2.0, -1.0, 0.0, 1.0, 2.0, 4.0}) {
    add(current + change);
  }
  add(std::ceil(current * 1.5));
  add(need);
  add(std::ceil(need * 1.5));
  add(need * 2 + 1);
  return {out.begin(), out.end()};
}

Alternative ModelPredictive::judge(const Inputs& inputs, const Outlook& outlook, uint32_t workers) {
  const PoolState& pool = inputs.decode;
  std::vector<ModelWorker> fleet;
  const uint32_t ready = std::min(pool.ready, workers);
  for (uint32_t i = 0; i < workers; ++i) {
    ModelWorker worker;
    if (i < ready && i < pool.engines.size()) {
      const EngineLoad& load = pool.engines[i];
      worker.running = load.running;
      worker.busy_s =
          engine_.drain_ms(load.queued_prefill_tokens * (1 - hit_rate_),
                           config_.max_num_batched_tokens, load.running, load.decode_kv_tokens) *
          1e-3;
    } else if (i >= ready) {
      // Those that start already are half way there, on average.
      worker.ready_s = i < pool.expected ? config_.start_up_s / 2 : config_.start_up_s;
      worker.is_new = true;
    }
    fleet.push_back(worker);
  }
  ModelOutcome outcome;
  const ModelGoals goals{.ttft_ms = config_.ttft_ms,
                         .itl_ms = config_.itl_ms,
                         .quantile = config_.quantile,
                         .kv_hit_rate = hit_rate_,
                         .max_num_batched_tokens = config_.max_num_batched_tokens};
  for (const auto& path : outlook.paths) {
    model_.run(fleet, path, goals, outcome);
  }
  return {.workers = workers,
          .ttft_ms = quantile_of(outcome.ttft_ms, config_.quantile),
          .itl_ms = quantile_of(outcome.itl_ms, config_.quantile),
          .miss_ratio = outcome.requests > 0 ? outcome.misses / outcome.requests : 0,
          .gpu_seconds = workers * outlook.horizon_s * config_.gpus_per_worker};
}

const Alternative& ModelPredictive::choose(uint32_t current, const Outlook& outlook,
                                           const std::vector<Alternative>& all) const {
  // GPU time of a request at an engine that keeps the goals.
  const double request_s = capacity_ > 0 ? config_.gpus_per_worker / capacity_ : 0;
  const double requests = outlook.rate * outlook.horizon_s;
  const double correction = std::clamp((observed_ + 1) / (expected_ + 1), 1.0, kCorrectionMax);
  const auto cost = [&](const Alternative& each) {
    return each.gpu_seconds +
           config_.miss_price * request_s * correction * each.miss_ratio * requests;
  };
  const auto best = std::ranges::min_element(all, {}, cost);
  const auto stay = std::ranges::find(all, current, &Alternative::workers);
  const bool clear = stay == all.end() || cost(*best) < (1 - kClearlyCheaper) * cost(*stay);
  return clear ? *best : *stay;
}

uint32_t ModelPredictive::settle(const Inputs& inputs, uint32_t wanted, bool urgent,
                                 Decision& decision) {
  const uint32_t current = inputs.decode.expected;
  if (wanted > current) {
    smaller_since_s_ = -1;
    larger_ticks_ += 1;
    if (!urgent && larger_ticks_ < 3) {  // one sample of paths may be unlucky
      decision.reason = "scale_up_held";
      return current;
    }
    larger_ticks_ = 0;
    started_at_s_ = inputs.now_s;
    decision.reason = "scale_up";
    return wanted;
  }
  larger_ticks_ = 0;
  if (wanted == current) {
    smaller_since_s_ = -1;
    decision.reason = "no_change";
    return current;
  }
  if (smaller_since_s_ < 0) {
    smaller_since_s_ = inputs.now_s;
    smaller_most_ = wanted;
  }
  smaller_most_ = std::max(smaller_most_, wanted);
  const double hold = std::max(config_.down_hold_min_s, 2 * config_.start_up_s);
  const bool starts = inputs.decode.ready < current;
  if (starts || inputs.now_s - smaller_since_s_ < hold || inputs.now_s - started_at_s_ < hold) {
    decision.reason = "scale_down_held";
    return current;
  }
  smaller_since_s_ = -1;
  decision.reason = "scale_down";
  return std::min(current, smaller_most_);
}

void ModelPredictive::decide(const Inputs& inputs, Decision& decision) {
  learn(inputs);
  ++ticks_;
  const uint32_t current = inputs.decode.expected;
  const Outlook outlook = look_ahead();
  decision.predicted_requests_per_s = outlook.rate;
  if (!(mean_input_ > 0)) {
    decision.reason = "insufficient_data";
    decision.text = fmt::format("keep {} workers: no request has ended yet", current);
    decision.workers = current;
    return;
  }
  for (const uint32_t workers : candidates(current, outlook.rate)) {
    decision.alternatives.push_back(judge(inputs, outlook, workers));
  }
  const Alternative& wanted = choose(current, outlook, decision.alternatives);
  const bool urgent = misses_of(current, decision.alternatives) > 1 - config_.quantile;
  const uint32_t settled = settle(inputs, wanted.workers, urgent, decision);
  const auto shown = std::ranges::find(decision.alternatives, settled, &Alternative::workers);
  const Alternative& best = shown == decision.alternatives.end() ? wanted : *shown;
  decision.workers = settled;
  last_miss_ratio_ = best.miss_ratio;
  decision.engine_requests_per_s = capacity_;
  decision.estimated_ttft_ms = best.ttft_ms;
  decision.estimated_itl_ms = best.itl_ms;
  decision.text = fmt::format(
      "{} → {} workers ({}): {:.2f} requests/s expected; {} would have TTFT {:.0f} ms, ITL {:.1f} "
      "ms at "
      "p{:.0f} and miss {:.2f} %; {} would cost least",
      current, settled, decision.reason, outlook.rate, best.workers, best.ttft_ms, best.itl_ms,
      config_.quantile * 100, best.miss_ratio * 100, wanted.workers);
}

}  // namespace stator::planner
