// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/mpc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace stator::planner {
namespace {

constexpr double kMemory_s = 1800;  // of misses, against what was expected
constexpr double kWindow_s = 90;    // of each path that counts, at least
constexpr double kWindowMax_s = 300;
constexpr double kStartUpMax_s = 300;
constexpr double kRequests = 400;      // of each path that count, at least
constexpr double kRequestsMax = 6000;  // of all paths; longer ones are cut in time
constexpr double kPathsMin = 3;
constexpr double kQueuedMax = 1e8;  // tokens that wait for one engine
/// The rate must fall below the range of a size by so much, of itself and in workers.
constexpr double kBand = 0.05;
constexpr double kBandLeast = 0.25;
/// Another size must be cheaper by this part of the GPU time that it adds or saves.
constexpr double kClearly = 0.5;
/// Of the engines that the rate fills, fewer than this part would serve far beyond their goals,
/// whatever the model of the fleet says.
constexpr double kFewest = 0.6;
/// The quantile is lost when so many times the misses that it allows are expected: what is bought
/// then is more than the expected rate needs.
constexpr double kClearlyMissed = 2;
constexpr double kNeighbours = 0.2;  // how far sizes are neighbours, as a logarithm
/// What the model expects is multiplied by what it was off by, from this to that.
constexpr double kCorrectionMin = 0.3;
constexpr double kCorrectionMax = 10;
/// So long after the last change requests end that the fleet as it is has served.
constexpr double kSettled_s = 60;
/// A larger fleet must have been wanted for so long, unless the quantile is at stake.
constexpr double kUpHold_s = 60;
/// What is affordable: another worker for so long (from kSpendMin_s in large fleets), the present
/// ones for so long; credit is kept of so long, and debt is a part of what could have been spent.
constexpr double kSpend_s = 2700;
constexpr double kSpendMin_s = 450;
constexpr double kSmall = 3;  // workers of a fleet that waits so long
constexpr double kStay_s = 60;
constexpr double kCreditMax_s = 1800;
constexpr double kDebtMax = 0.005;
/// Rules that have grown beyond so many times their mean follow a load that has risen.
constexpr double kRise = 1.25;
/// Where so many requests would miss a goal, the rules that set the limit have lost them.
constexpr double kLost = 0.5;
/// So long a fleet may be larger than what is affordable, at least.
constexpr double kSpendHold_s = 30;
/// So many misses are taken to have been as expected, before any is known.
constexpr double kMissesKnown = 5;

double quantile_of(std::vector<float>& values, double quantile) {
  if (values.empty()) {
    return 0;
  }
  const auto at =
      static_cast<ptrdiff_t>(std::round(static_cast<double>(values.size() - 1) * quantile));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<size_t>(at)];
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) {
    sum += value;
  }
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
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

/// Of the size next to that.
double misses_near(uint32_t workers, const std::vector<Alternative>& all) {
  const auto found = std::ranges::lower_bound(all, workers, {}, &Alternative::workers);
  return found == all.end() ? all.back().miss_ratio : found->miss_ratio;
}

}  // namespace

ModelPredictive::ModelPredictive(const PlannerConfig& config, const perf::TimingModel& timing,
                                 const EngineTiming& engine)
    : config_(config), engine_(engine), model_(engine) {
  if (config.spend_limit > 0) {
    rules_ = std::make_unique<RulesShadow>(config, timing);
    rules_ = rules_->usable() ? std::move(rules_) : nullptr;
  }
}

void ModelPredictive::learn(const Inputs& inputs) {
  if (!inputs.traffic || !(inputs.traffic->duration_s > 0)) {
    return;
  }
  const Traffic& t = *inputs.traffic;
  rate_.add(t.requests, t.duration_s);
  recent_.add(t);
  if (rules_ != nullptr) {
    rules_->observe(inputs);
    spent_ +=
        t.duration_s * ((size_ > 0 ? size_ : inputs.decode.expected) + inputs.decode.draining);
  }
  // The model is held against what happened, over some minutes: both sums fade alike.
  const double fade = std::exp(-t.duration_s / kMemory_s);
  settled_s_ = inputs.decode.ready == inputs.decode.expected ? settled_s_ + t.duration_s : 0;
  if (settled_s_ < kSettled_s) {
    return;  // those that end came to another fleet than the one that was judged
  }
  observed_ = observed_ * fade + t.missed;
  expected_ = expected_ * fade + last_miss_ratio_ / correction_ * t.ended;
  correction_ = std::clamp((observed_ + kMissesKnown) / (expected_ + kMissesKnown), kCorrectionMin,
                           kCorrectionMax);
}

ModelPredictive::Outlook ModelPredictive::look_ahead(const Inputs& inputs) {
  Outlook out;
  out.rate = rate_.mean();
  if (inputs.forecast && inputs.forecast->requests && inputs.traffic->duration_s > 0) {
    out.rate = *inputs.forecast->requests / inputs.traffic->duration_s;
  }
  // What is decided now acts once workers have started; before that all sizes suffer alike.
  out.from_s = std::min(config_.start_up_s, kStartUpMax_s);
  double window_s = std::max(kWindow_s, out.rate > 0 ? kRequests / out.rate : 0);
  window_s = std::min(window_s, kWindowMax_s);
  out.horizon_s = out.from_s + window_s;
  // Fewer paths before shorter ones: new workers must have begun, and old queues have drained.
  const double paths = std::clamp(
      std::floor(kRequestsMax / std::max(1.0, out.rate * out.horizon_s)),
      std::min<double>(kPathsMin, config_.mpc_paths), std::max<double>(1, config_.mpc_paths));
  const double most = kRequestsMax / paths;
  if (out.rate * out.horizon_s > most) {
    const double scale = most / (out.rate * out.horizon_s);
    out.from_s *= scale;
    out.horizon_s *= scale;
  }
  const double spread = rate_.spread(config_.start_up_s + window_s / 2);
  out.high_rate = out.rate * std::exp(spread);
  Random random(mix64(config_.seed));  // the same draws at each tick: sizes do not flicker
  double output = 0, squares = 0;
  for (double k = 0; k < paths; ++k) {
    const double z = normal_quantile((k + 0.5) / paths);
    out.paths.push_back(recent_.draw(out.rate * std::exp(spread * z), out.horizon_s,
                                     static_cast<size_t>(2 * most), random));
    for (const ModelRequest& request : out.paths.back()) {
      output += request.output_tokens;
      squares += request.output_tokens * request.output_tokens;
    }
  }
  out.output_residual = output > 0 ? squares / output / 2 : recent_.mean_output() / 2;
  return out;
}

uint32_t ModelPredictive::fewest() const {
  return static_cast<uint32_t>(std::ceil(kFewest * filled_));
}

/// The most workers that the limit leaves room for. Up: for so long that the change pays; the
/// present size as long as the limit is kept but for a little.
uint32_t ModelPredictive::affordable(const Inputs& inputs) const {
  if (rules_ == nullptr) {
    return config_.max_workers;
  }
  const uint32_t current = inputs.decode.expected;
  const double all = config_.spend_limit * rules_->worker_seconds(inputs.now_s);
  const double present = rules_->present(), mean = rules_->workers();
  const double usual = config_.spend_limit * (present > kRise * mean + 1 ? present : mean);
  const double credit = std::min(all - spent_, usual * kCreditMax_s);
  // One worker more is little of a large fleet, and much of a small one.
  const double spend_s =
      std::clamp(kSpend_s * kSmall / std::max(usual, 1.0), kSpendMin_s, kSpend_s);
  const auto room = static_cast<uint32_t>(std::clamp<double>(
      usual + credit / spend_s, std::max(1U, config_.min_workers), config_.max_workers));
  // A size below the usual one pays debts by itself.
  if (current <= usual || credit + (usual - current) * kStay_s >= -kDebtMax * all) {
    return std::max(current, room);
  }
  const uint32_t floor = static_cast<uint32_t>(std::min<double>(usual, config_.max_workers));
  return std::max({1U, config_.min_workers, floor, std::min(room, current - 1)});
}

std::vector<uint32_t> ModelPredictive::candidates(uint32_t current, const Outlook& outlook) {
  const Capacity capacity =
      find_capacity(engine_, {.input_tokens = recent_.mean_input(),
                              .output_tokens = recent_.mean_output(),
                              .kv_hit_rate = recent_.hit_rate(),
                              .ttft_ms = config_.ttft_ms,
                              .itl_ms = config_.itl_ms,
                              .max_num_batched_tokens = config_.max_num_batched_tokens,
                              .max_num_seqs = config_.max_num_seqs});
  capacity_ = capacity.requests_per_s;
  const double need = capacity_ > 0 ? outlook.high_rate / capacity_ : current;
  // A rate between two sizes does not move the fleet back and forth.
  const double band = 1 + std::max(kBandLeast, kBand * need);
  if (filled_ == 0 || need > filled_ || need < filled_ - band) {
    filled_ = static_cast<uint32_t>(std::clamp<double>(
        std::ceil(need), std::max(1U, config_.min_workers), config_.max_workers));
  }
  std::set<uint32_t> out;
  const auto add = [&](double workers) {
    out.insert(static_cast<uint32_t>(
        std::clamp<double>(workers, std::max(1U, config_.min_workers), config_.max_workers)));
  };
  const auto now = double{1} * current;
  for (const double size : {now - 2, now - 1, now, now + 1, now + 2, std::round(current * 0.7),
                            std::round(current * 0.85)}) {
    add(size);
  }
  add(most_);
  // What cannot be afforded is of interest only where the goals are being lost.
  if (rules_ != nullptr && last_miss_ratio_ < kLost / 2) {
    return {out.begin(), out.end()};
  }
  for (const double factor : {1.15, 1.5}) {
    add(std::round(current * factor));
  }
  add(filled_);
  add(fewest());
  add(fewest() + fewest() / 6);
  add(std::ceil(need * 0.8));
  add(std::ceil(need * 1.25));
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
      worker.running = std::min(load.running, config_.max_num_seqs);
      worker.kv_tokens = std::min(load.decode_kv_tokens, config_.max_kv_tokens);
      worker.queued_tokens =
          std::min(load.queued_prefill_tokens, kQueuedMax) * (1 - recent_.hit_rate());
    } else if (i >= ready) {
      // Those that start already are half way there, on average.
      worker.ready_s = i < pool.expected ? outlook.from_s / 2 : outlook.from_s;
      worker.is_new = true;
    }
    fleet.push_back(worker);
  }
  ModelOutcome outcome;
  const ModelGoals goals{.ttft_ms = config_.ttft_ms,
                         .itl_ms = config_.itl_ms,
                         .max_num_batched_tokens = config_.max_num_batched_tokens,
                         .max_num_seqs = config_.max_num_seqs,
                         .from_s = outlook.from_s,
                         .output_residual = outlook.output_residual};
  for (const auto& path : outlook.paths) {
    model_.run(fleet, path, goals, outcome);
  }
  return {.workers = workers,
          .ttft_ms = quantile_of(outcome.ttft_ms, config_.quantile),
          .itl_ms = quantile_of(outcome.itl_ms, config_.quantile),
          .mean_ttft_ms = mean_of(outcome.ttft_ms),
          .mean_itl_ms = mean_of(outcome.itl_ms),
          .miss_ratio = outcome.requests > 0
                            ? std::min(1.0, correction_ * outcome.misses / outcome.requests)
                            : 0,
          .gpu_seconds = workers * (outlook.horizon_s - outlook.from_s) * config_.gpus_per_worker};
}

/// Sizes beside one another say much about one another: each takes what a line through its
/// neighbours says, in logarithms of misses over workers; more workers never miss more.
void ModelPredictive::smooth(const Outlook& outlook, std::vector<Alternative>& all) {
  const double requests = outlook.rate * (outlook.horizon_s - outlook.from_s);
  const double least = 0.5 / std::max(1.0, requests * static_cast<double>(outlook.paths.size()));
  std::vector<double> fitted;
  for (const Alternative& of : all) {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const Alternative& each : all) {
      const double at = std::log(double{1} * each.workers / of.workers);
      const double weight = std::exp(-at * at / (2 * kNeighbours * kNeighbours));
      const double value = std::log(each.miss_ratio + least);
      w += weight;
      x += weight * at;
      y += weight * value;
      xx += weight * at * at;
      xy += weight * at * value;
    }
    const double spread = w * xx - x * x;
    const double slope = spread > 1e-9 ? std::min(0.0, (w * xy - x * y) / spread) : 0;
    const double value = std::clamp(std::exp((y - slope * x) / w) - least, 0.0, 1.0);
    fitted.push_back(fitted.empty() ? value : std::min(value, fitted.back()));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].miss_ratio = fitted[i];
  }
}

const Alternative& ModelPredictive::choose(uint32_t current, const Outlook& outlook,
                                           const std::vector<Alternative>& all) const {
  // GPU time of a request at an engine that keeps the goals.
  const double request_s = capacity_ > 0 ? config_.gpus_per_worker / capacity_ : 0;
  const double requests = outlook.rate * (outlook.horizon_s - outlook.from_s);
  const auto cost = [&](const Alternative& each) {
    return each.gpu_seconds + config_.miss_price * request_s * each.miss_ratio * requests;
  };
  // More engines than would all work at what they can take within the goals only shorten the
  // tail: they are bought if the quantile is not kept without them.
  const auto enough = std::ranges::find_if(all, [&](const Alternative& each) {
    return each.miss_ratio <= kClearlyMissed * (1 - config_.quantile);
  });
  uint32_t most = std::max(filled_, enough == all.end() ? config_.max_workers : enough->workers);
  if (rules_ != nullptr && misses_near(most_, all) < kLost) {
    most = most_;
  }
  // Who falls below the fewest gets some more at once: not one each time that the rate grows.
  const uint32_t least = std::min(most, current < fewest() ? fewest() + fewest() / 6 : fewest());
  const auto begin =
      std::ranges::lower_bound(all, std::min(most, least), {}, &Alternative::workers);
  const auto end = std::max(std::ranges::upper_bound(all, most, {}, &Alternative::workers),
                            begin == all.end() ? begin : begin + 1);
  const auto best = std::ranges::min_element(begin == end ? all.begin() : begin, end, {}, cost);
  const auto stay = std::ranges::find(all, current, &Alternative::workers);
  if (stay < begin || stay >= end) {
    return *best;
  }
  const double moved = std::abs(best->gpu_seconds - stay->gpu_seconds);
  return cost(*best) + kClearly * moved < cost(*stay) ? *best : *stay;
}

uint32_t ModelPredictive::settle(const Inputs& inputs, uint32_t wanted, bool urgent,
                                 Decision& decision) {
  const uint32_t current = inputs.decode.expected;
  if (wanted > current) {
    smaller_since_s_ = -1;
    if (larger_since_s_ < 0) {
      larger_since_s_ = inputs.now_s;
      larger_least_ = wanted;
    }
    larger_least_ = std::min(larger_least_, wanted);
    if (!urgent && inputs.now_s - larger_since_s_ < kUpHold_s) {  // one draw may be unlucky
      decision.reason = "scale_up_held";
      return current;
    }
    larger_since_s_ = -1;
    started_at_s_ = inputs.now_s;
    decision.reason = "scale_up";
    return urgent ? wanted : larger_least_;
  }
  larger_since_s_ = -1;
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
  const bool spends = rules_ != nullptr && current > most_;  // more than it may
  const double hold = std::max(spends ? kSpendHold_s : config_.down_hold_min_s, config_.start_up_s);
  const double rest = std::max(config_.down_hold_min_s, 2 * config_.start_up_s);
  const bool starts = inputs.decode.ready < current;
  if (starts || inputs.now_s - smaller_since_s_ < hold || inputs.now_s - started_at_s_ < rest) {
    decision.reason = "scale_down_held";
    return current;
  }
  smaller_since_s_ = -1;
  decision.reason = "scale_down";
  return std::min(current, smaller_most_);
}

void ModelPredictive::decide(const Inputs& inputs, Decision& decision) {
  learn(inputs);
  const uint32_t current = inputs.decode.expected;
  const Outlook outlook = look_ahead(inputs);
  most_ = affordable(inputs);
  size_ = current;
  decision.predicted_requests_per_s = outlook.rate;
  if (!recent_.known()) {
    decision.reason = "insufficient_data";
    decision.text = fmt::format("keep {} workers: no request has ended yet", current);
    decision.workers = current;
    return;
  }
  for (const uint32_t workers : candidates(current, outlook)) {
    decision.alternatives.push_back(judge(inputs, outlook, workers));
  }
  smooth(outlook, decision.alternatives);
  const Alternative& wanted = choose(current, outlook, decision.alternatives);
  const bool urgent =
      misses_of(current, decision.alternatives) > kClearlyMissed * (1 - config_.quantile);
  const uint32_t settled = settle(inputs, wanted.workers, urgent, decision);
  const auto shown = std::ranges::find(decision.alternatives, settled, &Alternative::workers);
  const Alternative& best = shown == decision.alternatives.end() ? wanted : *shown;
  decision.workers = size_ = settled;
  settled_s_ = settled == current ? settled_s_ : 0;
  last_miss_ratio_ = best.miss_ratio;
  decision.engine_requests_per_s = capacity_;
  decision.estimated_ttft_ms = best.mean_ttft_ms;
  decision.estimated_itl_ms = best.mean_itl_ms;
  decision.text = fmt::format(
      "{} → {} workers ({}): {:.2f} requests/s expected; {} would have TTFT {:.0f} ms, ITL {:.1f} "
      "ms at "
      "p{:.0f} and miss {:.2f} %; {} would cost least{}",
      current, settled, decision.reason, outlook.rate, best.workers, best.ttft_ms, best.itl_ms,
      config_.quantile * 100, best.miss_ratio * 100, wanted.workers,
      rules_ == nullptr ? "" : fmt::format(" of at most {} (rules: {})", most_, rules_->present()));
}

}  // namespace stator::planner
