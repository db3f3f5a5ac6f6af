// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/planner_metrics.h"

#include <fmt/format.h>

#include <set>

namespace stator::scaling {
namespace {

constexpr double kTickBounds[] = {0.001, 0.005, 0.02, 0.1, 0.5, 1, 3, 10, 30};
constexpr std::string_view kEngineGauges[] = {"queued_prefill_tokens", "queued_decode_kv_tokens",
                                              "inflight_decode_kv_tokens"};
constexpr size_t kEnginesMax = 1024;  // that have series of their own

std::string ours(std::string_view name) {
  return fmt::format("stator_planner_{}", name);
}
std::string theirs(std::string_view name) {
  return fmt::format("dynamo_planner_{}", name);
}

}  // namespace

PlannerMetrics::PlannerMetrics(Metrics& metrics, const planner::PlannerConfig& config)
    : metrics_(metrics),
      config_(config),
      ticks_(metrics.counter(ours("ticks_total"), "times the planner looked and decided")),
      failures_(
          metrics.counter(ours("failures_total"), "changes that the connector did not carry out")),
      changes_(metrics.counter(ours("changes_total"), "changes that were carried out")),
      seconds_(metrics.histogram(ours("tick_seconds"), "time of a tick, observation included",
                                 kTickBounds)) {
  set("sla_target_ttft_ms", "goal for the time to the first token", config.ttft_ms);
  set("sla_target_itl_ms", "goal for the mean time per further token", config.itl_ms);
}

void PlannerMetrics::set(std::string_view name, std::string_view help, double value) {
  auto found = gauges_.find(name);
  if (found == gauges_.end()) {
    found = gauges_
                .emplace(name, std::pair(metrics_.gauge(ours(name), help),
                                         metrics_.gauge(theirs(name), help)))
                .first;
  }
  found->second.first.set(value);
  found->second.second.set(value);
}

void PlannerMetrics::choose(std::string_view name, std::string_view reason) {
  std::string& now = chosen_[std::string(name)];
  if (now == reason) {
    return;
  }
  for (const std::string& full : {ours(name), theirs(name)}) {
    constexpr std::string_view kHelp = "why the planner last decided as it did";
    if (!now.empty()) {
      metrics_.gauge(full, kHelp, {{full, now}}).set(0);
    }
    metrics_.gauge(full, kHelp, {{full, std::string(reason)}}).set(1);
  }
  now = reason;
}

void PlannerMetrics::update_engines(const planner::PoolState& pool) {
  for (const planner::EngineLoad& load : pool.engines) {
    const std::string id = std::to_string(load.id);
    if (!engines_.contains(id) && engines_.size() >= kEnginesMax) {
      continue;
    }
    engines_[id] = 0;
    const double values[] = {load.queued_prefill_tokens, 0, load.decode_kv_tokens};
    for (size_t i = 0; i < 3; ++i) {
      const MetricLabels labels = {{"worker_id", id}, {"dp_rank", "0"}};
      metrics_.gauge(ours(kEngineGauges[i]), "load of an engine", labels).set(values[i]);
      metrics_.gauge(theirs(kEngineGauges[i]), "load of an engine", labels).set(values[i]);
    }
  }
}

void PlannerMetrics::update(const planner::Inputs& inputs, const planner::Decision& decision,
                            const Observed& seen) {
  set("num_prefill_replicas", "workers that compute prompts only", inputs.prefill.ready);
  set("num_decode_replicas", "workers that decode, or do both", inputs.decode.ready);
  if (inputs.traffic) {
    set("observed_requests_per_second", "that came", seen.requests_per_s);
    set("observed_ttft_ms", "mean of the last window", seen.ttft_ms);
    set("observed_itl_ms", "mean of the last window", seen.itl_ms);
    set("observed_request_duration_seconds", "mean of the last window", seen.duration_s);
    set("observed_input_sequence_tokens", "mean per request", seen.input_tokens);
    set("observed_output_sequence_tokens", "mean per request", seen.output_tokens);
    set("predicted_input_sequence_tokens", "mean per request", seen.input_tokens);
    set("predicted_output_sequence_tokens", "mean per request", seen.output_tokens);
  }
  set("predicted_requests_per_second", "expected", decision.predicted_requests_per_s);
  set("predicted_num_prefill_replicas", "wanted",
      decision.prefill_workers.value_or(inputs.prefill.expected));
  set("predicted_num_decode_replicas", "wanted", decision.workers.value_or(inputs.decode.expected));
  set("estimated_ttft_ms", "what the model expects", decision.estimated_ttft_ms);
  set("estimated_itl_ms", "what the model expects", decision.estimated_itl_ms);
  set("engine_decode_capacity_requests_per_second", "of one engine within the goals",
      decision.engine_requests_per_s);
  set("engine_prefill_capacity_requests_per_second", "of one engine within the goals",
      decision.prefill_engine_requests_per_s);
  const bool forecast = config_.policy == planner::PolicyKind::kThroughput;
  choose(forecast ? "throughput_scaling_decision" : "load_scaling_decision", decision.reason);
  for (auto it = engines_.begin(); it != engines_.end();) {
    if (++it->second < 3) {
      ++it;
      continue;
    }
    for (const std::string_view name : kEngineGauges) {
      metrics_.remove(ours(name), {{"worker_id", it->first}, {"dp_rank", "0"}});
      metrics_.remove(theirs(name), {{"worker_id", it->first}, {"dp_rank", "0"}});
    }
    it = engines_.erase(it);
  }
  update_engines(inputs.prefill);
  update_engines(inputs.decode);
}

void PlannerMetrics::count_tick(double seconds) {
  ticks_.add();
  seconds_.observe(seconds);
}

void PlannerMetrics::count_failure() {
  failures_.add();
}

void PlannerMetrics::count_change() {
  changes_.add();
}

}  // namespace stator::scaling
