// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/worker_gauges.h"

#include <array>
#include <utility>
#include <vector>

namespace stator::frontend {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"_worker_last_time_to_first_token_seconds",
                                                    "_worker_last_input_sequence_tokens",
                                                    "_worker_last_inter_token_latency_seconds"};

}  // namespace

WorkerGauges::WorkerGauges(Metrics& metrics, std::string prefix)
    : metrics_(metrics), prefix_(std::move(prefix)) {}

MetricLabels WorkerGauges::labels_of(WorkerKey worker, std::string_view type) const {
  return {{"worker_id", std::to_string(worker.worker.value())},
          {"dp_rank", std::to_string(worker.dp_rank)},
          {"worker_type", std::string(type)}};
}

void WorkerGauges::joined(WorkerId worker, std::string_view type) {
  const MutexLock lock(mutex_);
  types_.emplace(worker, type);
}

void WorkerGauges::left(WorkerId worker) {
  const MutexLock lock(mutex_);
  const auto known = types_.find(worker);
  if (known == types_.end()) {
    return;
  }
  std::vector<WorkerKey> gone;
  for (const auto& [key, shown] : shown_) {
    if (key.worker == worker) {
      gone.push_back(key);
    }
  }
  for (const WorkerKey key : gone) {
    for (const std::string_view name : kNames) {
      metrics_.remove(prefix_ + std::string(name), labels_of(key, known->second));
    }
    shown_.erase(key);
  }
  types_.erase(known);
}

WorkerGauges::Shown* WorkerGauges::find(WorkerKey worker) {
  if (const auto known = shown_.find(worker); known != shown_.end()) {
    return &known->second;
  }
  const auto type = types_.find(worker.worker);
  if (type == types_.end()) {
    return nullptr;
  }
  const MetricLabels labels = labels_of(worker, type->second);
  const auto gauge = [&](size_t which, const char* help) {
    return metrics_.gauge(prefix_ + std::string(kNames[which]), help, labels);
  };
  return &shown_
              .emplace(worker, Shown{.first_token = gauge(0, "of the worker's last request"),
                                     .prompt_tokens = gauge(1, "of the worker's last request"),
                                     .inter_token = gauge(2, "mean of the worker's last answer")})
              .first->second;
}

void WorkerGauges::first_token(WorkerKey worker, double seconds, uint32_t prompt_tokens) {
  const MutexLock lock(mutex_);
  if (const Shown* shown = find(worker)) {
    shown->first_token.set(seconds);
    shown->prompt_tokens.set(prompt_tokens);
  }
}

void WorkerGauges::inter_token(WorkerKey worker, double seconds) {
  const MutexLock lock(mutex_);
  if (const Shown* shown = find(worker)) {
    shown->inter_token.set(seconds);
  }
}

}  // namespace stator::frontend
