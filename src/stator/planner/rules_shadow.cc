// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/rules_shadow.h"

#include <algorithm>
#include <cmath>

#include "stator/planner/planner_core.h"

namespace stator::planner {
namespace {

/// Most requests have ended so long after they came.
constexpr double kBehind_s = 20;
constexpr double kMean_s = 600;
constexpr double kFreshMin = 0.05;  // of a prompt, what is not cached
/// A clock that jumps further than that begins anew there.
constexpr double kJump_s = 1200;

PlannerConfig rules_of(PlannerConfig config) {
  config.policy = PolicyKind::kReference;
  config.min_workers = std::max(1U, config.min_workers);
  return config;
}

}  // namespace

RulesShadow::RulesShadow(const PlannerConfig& config, const perf::TimingModel& timing)
    : config_(rules_of(config)), engine_(timing, config.max_kv_tokens), fleet_(engine_) {
  if (auto core = PlannerCore::create(config_, timing)) {
    rules_ = std::move(*core);
  }
}

RulesShadow::~RulesShadow() = default;

void RulesShadow::collect(const Traffic& t, double now_s) {
  const auto insert = [&](ModelRequest request, double times) {
    left_over_ += times;
    request.at_s = std::clamp(request.at_s, now_s_, now_s);
    for (; left_over_ >= 1 && waiting_.size() < kWaitingMax; --left_over_) {
      const auto at = std::ranges::upper_bound(waiting_, request.at_s, {}, &ModelRequest::at_s);
      waiting_.insert(at, request);
    }
    left_over_ = std::min(left_over_, 1.0);
  };
  const bool known = !t.sample.empty() && t.sample.front().at_s >= 0;
  if (known) {
    const double each = std::max(1.0, t.ended / static_cast<double>(t.sample.size()));
    for (const RequestLength& length : t.sample) {
      insert({.at_s = length.at_s,
              .input_tokens = length.input_tokens,
              .output_tokens = length.output_tokens,
              .cached_tokens = length.cached_tokens},
             each);
    }
  } else if (t.requests > 0 && t.input_tokens > 0) {
    for (double i = 0; i < std::floor(t.requests); ++i) {
      insert({.at_s = now_s - t.duration_s * (1 - (i + 0.5) / t.requests),
              .input_tokens = t.input_tokens,
              .output_tokens = t.output_tokens,
              .cached_tokens = t.input_tokens * t.kv_hit_rate},
             1);
    }
  }
}

void RulesShadow::observe(const Inputs& inputs) {
  if (!inputs.traffic || rules_ == nullptr) {
    return;
  }
  if (begin_s_ < 0 || inputs.now_s - now_s_ > kJump_s) {
    begin_s_ = begin_s_ < 0 ? inputs.now_s - inputs.traffic->duration_s : begin_s_;
    now_s_ = std::max(0.0, inputs.now_s - inputs.traffic->duration_s);
    expected_ = std::max(config_.min_workers, inputs.decode.expected);
    mean_ = expected_;
    waiting_.clear();
    const std::vector<ModelWorker> begin(expected_);
    fleet_.begin(begin,
                 {.ttft_ms = config_.ttft_ms,
                  .itl_ms = config_.itl_ms,
                  .max_num_batched_tokens = config_.max_num_batched_tokens,
                  .max_num_seqs = config_.max_num_seqs},
                 outcome_);
    fleet_.advance(now_s_);
  }
  collect(*inputs.traffic, inputs.now_s);
  while (now_s_ + config_.load_interval_s <= inputs.now_s - kBehind_s) {
    step();
  }
}

/// One interval of the rules.
void RulesShadow::step() {
  const double until_s = now_s_ + config_.load_interval_s;
  double requests = 0, input = 0, output = 0, cached = 0;
  while (!waiting_.empty() && waiting_.front().at_s < until_s) {
    const ModelRequest& request = waiting_.front();
    fleet_.submit(request);
    ++requests;
    input += request.input_tokens;
    output += request.output_tokens;
    cached += std::min(request.cached_tokens, request.input_tokens);
    waiting_.pop_front();
  }
  fleet_.advance(until_s);
  now_s_ = until_s;
  spent_ += expected_ * config_.load_interval_s;
  // Over all that is known at first.
  const double window_s = std::min(kMean_s, now_s_ - begin_s_);
  mean_ += (expected_ - mean_) * std::min(1.0, config_.load_interval_s / window_s);
  outcome_ = {};
  Traffic& t = means_;
  t.duration_s = config_.load_interval_s;
  t.requests = requests;
  if (requests > 0) {
    t.input_tokens = input / requests;
    t.output_tokens = output / requests;
    t.kv_hit_rate = input > 0 ? cached / input : 0;
  }
  Inputs inputs{.now_s = now_s_, .traffic = t};
  inputs.decode.expected = expected_;
  const double fresh = std::max(kFreshMin, 1 - t.kv_hit_rate);
  for (const ModelWorker& worker : fleet_.workers()) {
    if (worker.ready_s <= now_s_) {
      ++inputs.decode.ready;
      inputs.decode.engines.push_back({.id = inputs.decode.ready,
                                       // The rules take off themselves what is cached.
                                       .queued_prefill_tokens = worker.queued_tokens / fresh,
                                       .running = worker.running,
                                       .decode_kv_tokens = worker.kv_tokens});
    }
  }
  resize(rules_->tick(inputs).workers.value_or(expected_));
}

void RulesShadow::resize(uint32_t wanted) {
  while (expected_ < wanted) {
    fleet_.add_worker(now_s_, now_s_ + config_.start_up_s);
    ++expected_;
  }
  while (expected_ > std::max(1U, wanted)) {
    spent_ += fleet_.remove_worker(now_s_) - now_s_;
    --expected_;
  }
}

double RulesShadow::worker_seconds(double now_s) const {
  return begin_s_ < 0 ? 0 : spent_ + expected_ * std::max(0.0, now_s - now_s_);
}

}  // namespace stator::planner
