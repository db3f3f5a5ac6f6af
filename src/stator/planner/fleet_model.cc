// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/fleet_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "stator/core/random.h"

namespace stator::planner {
namespace {

/// A new worker's cache is as good as the others' after so many requests: few, since a router that
/// knows caches sends it what nobody has.
constexpr double kWarmRequests = 4;
/// What one sequence more at a worker is worth in time, when two are compared.
constexpr double kSequence_s = 0.002;
/// Workers that a request chooses from.
constexpr size_t kChoices = 4;

}  // namespace

void FleetModel::begin(const ModelWorker& from, Worker& w) const {
  w.now_s = 0;
  w.ready_s = from.ready_s;
  w.kv_tokens = from.kv_tokens;
  w.queued_tokens = w.served = 0;
  w.steps = 0;
  w.is_new = from.is_new;
  w.head = 0;
  w.prompts.clear();
  w.sequences.clear();
  // Sequences that run already end evenly over what they have to answer still.
  for (double k = 0; k < from.running; ++k) {
    const double left = 1 + 2 * goals_.output_residual * (k + 0.5) / from.running;
    w.sequences.push_back({.end_step = static_cast<uint64_t>(left),
                           .kv_tokens = from.kv_tokens / from.running,
                           .output_tokens = left});
  }
  std::ranges::make_heap(w.sequences, std::greater<>());
  if (from.queued_tokens > 0) {
    w.prompts.push_back({.left_tokens = from.queued_tokens,
                         .input_tokens = from.queued_tokens,
                         .output_tokens = std::max(1.0, goals_.output_residual)});
    w.queued_tokens = from.queued_tokens;
  }
}

void FleetModel::count(const Sequence& sequence, double last_s) {
  if (!sequence.counts) {
    return;
  }
  const double ttft_ms = (sequence.first_s - sequence.at_s) * 1e3;
  const double itl_ms = sequence.output_tokens > 1
                            ? (last_s - sequence.first_s) * 1e3 / (sequence.output_tokens - 1)
                            : 0;
  outcome_->requests += 1;
  outcome_->misses += ttft_ms > goals_.ttft_ms || itl_ms > goals_.itl_ms ? 1 : 0;
  outcome_->ttft_ms.push_back(static_cast<float>(ttft_ms));
  outcome_->itl_ms.push_back(static_cast<float>(itl_ms));
}

void FleetModel::end_sequences(Worker& w) {
  while (!w.sequences.empty() && w.sequences.front().end_step <= w.steps) {
    const Sequence& ended = w.sequences.front();
    w.kv_tokens = std::max(0.0, w.kv_tokens - ended.kv_tokens - ended.output_tokens);
    count(ended, w.now_s);
    std::ranges::pop_heap(w.sequences, std::greater<>());
    w.sequences.pop_back();
  }
}

/// A prompt has been computed: its first token is there.
void FleetModel::join(Worker& w, const Prompt& prompt) {
  const Sequence sequence{
      .end_step = w.steps + static_cast<uint64_t>(std::max(1.0, prompt.output_tokens)) - 1,
      .first_s = w.now_s,
      .at_s = prompt.at_s,
      .kv_tokens = prompt.input_tokens,
      .output_tokens = prompt.output_tokens,
      .counts = prompt.counts};
  w.sequences.push_back(sequence);
  std::ranges::push_heap(w.sequences, std::greater<>());
}

/// One pass with chunks of prompts, first come first served, beside everyone who decodes.
void FleetModel::pass(Worker& w) {
  const auto running = static_cast<double>(w.sequences.size());
  double room = std::max(1.0, goals_.max_num_batched_tokens - running), tokens = 0;
  size_t last = w.head;  // the first that is not done with this pass
  double joined = 0;
  while (last < w.prompts.size() && room > 0) {
    Prompt& prompt = w.prompts[last];
    const bool fits = w.kv_tokens + prompt.input_tokens <= engine_.kv_tokens_max() &&
                      running + joined < goals_.max_num_seqs;
    if (!fits && !prompt.begun && running + joined + tokens > 0) {
      break;
    }
    prompt.begun = true;
    const double take = std::min(room, prompt.left_tokens);
    room -= take;
    tokens += take;
    prompt.left_tokens -= take;
    if (prompt.left_tokens > 0) {
      break;
    }
    w.kv_tokens += prompt.input_tokens;
    ++joined;
    ++last;
  }
  if (!(tokens > 0)) {  // the cache is full: whoever ends first makes room
    decode(w, std::numeric_limits<double>::infinity());
    return;
  }
  // Prompts that are done get their first token in this pass, as those that decode do.
  w.now_s += engine_.step_ms(tokens, running + joined, w.kv_tokens) * 1e-3;
  w.queued_tokens = std::max(0.0, w.queued_tokens - tokens);
  w.kv_tokens += running;
  ++w.steps;
  end_sequences(w);
  for (; w.head < last; ++w.head) {
    join(w, w.prompts[w.head]);
  }
  end_sequences(w);  // answers of one token
  if (!w.waits()) {
    w.prompts.clear();
    w.head = 0;
  }
}

/// Passes without prompts, until the first sequence ends or, about, until then.
void FleetModel::decode(Worker& w, double until_s) {
  const auto running = static_cast<double>(w.sequences.size());
  const uint64_t least = w.sequences.front().end_step;
  const double to_end = least > w.steps ? static_cast<double>(least - w.steps) : 1;
  const double step_s = engine_.step_ms(0, running, w.kv_tokens + running) * 1e-3;
  const double steps =
      std::clamp(std::ceil((until_s - w.now_s) / step_s), 1.0, to_end);  // a pass is finished
  w.now_s += steps * step_s;
  w.kv_tokens += steps * running;
  w.steps += static_cast<uint64_t>(steps);
  end_sequences(w);
}

void FleetModel::advance(Worker& w, double until_s) {
  while (w.now_s < until_s) {
    if (w.waits()) {
      w.now_s = std::max(w.now_s, w.ready_s);
      pass(w);
    } else if (!w.sequences.empty()) {
      decode(w, until_s);
    } else {
      w.now_s = until_s;
    }
  }
}

/// Until a prompt that comes now would begin.
double FleetModel::delay_s(const Worker& w, double now_s) const {
  const auto running = static_cast<double>(w.sequences.size());
  return std::max({w.now_s, w.ready_s, now_s}) - now_s +
         engine_.drain_ms(w.queued_tokens, goals_.max_num_batched_tokens, running, w.kv_tokens) *
             1e-3 +
         kSequence_s * running;
}

FleetModel::Worker& FleetModel::choose(double now_s, uint64_t draw) {
  Worker* best = nullptr;
  double least = 0;
  const size_t asked = std::min(kChoices, workers_.size());
  for (size_t i = 0; i < asked; ++i) {
    // With few workers each is looked at.
    const size_t at = asked < kChoices ? (draw + i) % workers_.size()
                                       : (draw >> (16 * i) & 0xFFFF) % workers_.size();
    Worker& w = workers_[at];
    if (w.ready_s > now_s) {
      continue;
    }
    advance(w, now_s);
    const double delay = delay_s(w, now_s);
    if (best == nullptr || delay < least) {
      best = &w;
      least = delay;
    }
  }
  // Not to one that starts, if another is there.
  return best != nullptr ? *best : *std::ranges::min_element(workers_, {}, &Worker::ready_s);
}

void FleetModel::begin(std::span<const ModelWorker> workers, const ModelGoals& goals,
                       ModelOutcome& outcome) {
  goals_ = goals;
  outcome_ = &outcome;
  index_ = 0;
  workers_.resize(workers.size());
  for (size_t i = 0; i < workers.size(); ++i) {
    begin(workers[i], workers_[i]);
  }
}

void FleetModel::submit(const ModelRequest& request) {
  if (workers_.empty()) {
    outcome_->requests += 1;
    outcome_->misses += 1;
    return;
  }
  Worker& w = choose(request.at_s, mix64(++index_));
  advance(w, request.at_s);
  const double warm = w.is_new ? std::min(1.0, w.served++ / kWarmRequests) : 1;
  const double fresh = std::max(1.0, request.input_tokens - request.cached_tokens * warm);
  w.prompts.push_back({.at_s = request.at_s,
                       .left_tokens = fresh,
                       .input_tokens = request.input_tokens,
                       .output_tokens = std::max(1.0, request.output_tokens),
                       .counts = request.at_s >= goals_.from_s});
  w.queued_tokens += fresh;
}

void FleetModel::advance(double until_s) {
  for (Worker& w : workers_) {
    advance(w, until_s);
  }
}

void FleetModel::finish(Worker& w) {
  while (w.waits() || !w.sequences.empty()) {
    advance(w, w.now_s + 1);
  }
}

void FleetModel::add_worker(double now_s, double ready_s) {
  workers_.emplace_back();
  begin({.ready_s = ready_s, .is_new = true}, workers_.back());
  workers_.back().now_s = now_s;
}

double FleetModel::remove_worker(double now_s) {
  Worker& last = workers_.back();
  const bool works = last.waits() || !last.sequences.empty();
  finish(last);
  const double end_s = works ? std::max(now_s, last.now_s) : now_s;
  workers_.pop_back();
  return end_s;
}

std::vector<ModelWorker> FleetModel::workers() const {
  std::vector<ModelWorker> out;
  out.reserve(workers_.size());
  for (const Worker& w : workers_) {
    out.push_back({.ready_s = w.ready_s,
                   .queued_tokens = w.queued_tokens,
                   .running = static_cast<double>(w.sequences.size()),
                   .kv_tokens = w.kv_tokens,
                   .is_new = w.is_new});
  }
  return out;
}

void FleetModel::run(std::span<const ModelWorker> workers, std::span<const ModelRequest> requests,
                     const ModelGoals& goals, ModelOutcome& outcome) {
  begin(workers, goals, outcome);
  for (const ModelRequest& request : requests) {
    submit(request);
  }
  for (Worker& w : workers_) {
    finish(w);
  }
}

}  // namespace stator::planner
