// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/pass_board.h"

#include <algorithm>

namespace stator::scaling {
namespace {

perf::PassShape shape_of(const engine::PassWork& work) {
  perf::PassShape shape;
  shape.prefill_requests = work.prefill_requests;
  shape.prefill_new_tokens = work.prefill_tokens;
  shape.prefill_prefix_tokens = work.prefill_kv_tokens;
  if (work.prefill_requests > 0) {
    // Prompts of equal length: the record has their sums only.
    const double fresh = static_cast<double>(work.prefill_tokens) / work.prefill_requests;
    const double before = static_cast<double>(work.prefill_kv_tokens) / work.prefill_requests;
    shape.prefill_pairs =
        static_cast<uint64_t>(work.prefill_requests * (fresh * before + fresh * (fresh + 1) / 2));
  }
  shape.decode_requests = work.decode_requests;
  shape.context_tokens = work.decode_kv_tokens;
  shape.kv_tokens = work.decode_kv_tokens + work.prefill_kv_tokens + work.prefill_tokens;
  shape.kv_tokens_max = std::max<uint64_t>(1, shape.kv_tokens);
  return shape;
}

}  // namespace

void PassBoard::add(uint64_t worker, const engine::ForwardPass& pass, double now_s) {
  if (timing_ != nullptr && pass.wall_seconds > 0) {
    timing_->learn(shape_of(pass.scheduled), pass.wall_seconds * 1e3);
  }
  const MutexLock lock(mutex_);
  const auto key = std::pair(worker, pass.dp_rank);
  if (!ranks_.contains(key) && ranks_.size() >= kRanksMax) {
    ++refused_;
    return;
  }
  Rank& rank = ranks_[key];
  rank.last = pass;
  rank.heard_s = now_s;
  rank.decodes = rank.decodes || pass.scheduled.decode_requests > 0;
  ++passes_;
  const engine::PassWork& work = pass.scheduled;
  sums_.started += work.prefill_requests;
  sums_.completed += work.prefill_requests;
  sums_.input_tokens += static_cast<double>(work.prefill_tokens + work.prefill_kv_tokens);
  sums_.input_count += work.prefill_requests;
  sums_.cached_tokens += static_cast<double>(work.prefill_kv_tokens);
  sums_.output_tokens += work.decode_requests;
  if (work.decode_requests > 0 && pass.wall_seconds > 0) {
    sums_.itl_s += pass.wall_seconds * work.decode_requests;
    sums_.itl_count += work.decode_requests;
  }
}

Observation PassBoard::look(double now_s) {
  const MutexLock lock(mutex_);
  Observation out;
  for (auto it = ranks_.begin(); it != ranks_.end();) {
    const Rank& rank = it->second;
    const bool idle = rank.last.scheduled == engine::PassWork();
    if (!idle && now_s - rank.heard_s > kSilent_s) {
      it = ranks_.erase(it);
      continue;
    }
    const engine::PassWork& work = rank.last.scheduled;
    const engine::PassQueue& queue = rank.last.queued;
    out.loads.push_back(
        {.worker = it->first.first,
         .rank = it->first.second,
         .computes_prompts = false,
         .queued_prefill_tokens = static_cast<double>(queue.prefill_tokens),
         .running = double{1} * work.decode_requests + queue.decode_requests,
         .decode_kv_tokens = static_cast<double>(work.decode_kv_tokens + queue.decode_kv_tokens)});
    ++it;
  }
  if (looked_s_ >= 0) {
    out.window_s = now_s - looked_s_;
    sums_.output_count = sums_.input_count;
    out.window = sums_;
  }
  sums_ = {};
  looked_s_ = now_s;
  return out;
}

void PassBoard::keep_only(const std::set<uint64_t>& workers) {
  const MutexLock lock(mutex_);
  std::erase_if(ranks_, [&](const auto& each) { return !workers.contains(each.first.first); });
}

uint64_t PassBoard::passes() const {
  const MutexLock lock(mutex_);
  return passes_;
}

uint64_t PassBoard::refused() const {
  const MutexLock lock(mutex_);
  return refused_;
}

}  // namespace stator::scaling
