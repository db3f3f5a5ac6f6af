// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/planner_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "stator/json/value.h"
#include "stator/planner/budget.h"

namespace stator::planner {
namespace {

/// A window this much longer than the interval is a clock that jumped.
constexpr double kJump_s = 3600;
constexpr double kRequestsMax = 1e9;

bool sane(double value, double most) {
  return std::isfinite(value) && value >= 0 && value <= most;
}

std::string fault_of(const PoolState& pool, std::string_view name) {
  for (const EngineLoad& load : pool.engines) {
    if (!sane(load.queued_prefill_tokens, 1e12) || !sane(load.running, 1e9) ||
        !sane(load.decode_kv_tokens, 1e12)) {
      return fmt::format("the load of {} engine {} is no number from 0", name, load.id);
    }
  }
  return {};
}

}  // namespace

Status parse_policy(std::string_view text, PlannerConfig& config) {
  constexpr std::string_view kStatic = "static:";
  if (text.starts_with(kStatic)) {
    const std::string_view number = text.substr(kStatic.size());
    const auto end =
        std::from_chars(number.data(), number.data() + number.size(), config.static_workers);
    if (end.ec == std::errc() && end.ptr == number.data() + number.size() &&
        config.static_workers > 0) {
      config.policy = PolicyKind::kStatic;
      return {};
    }
  }
  for (const auto& [name, kind] :
       {std::pair("mpc", PolicyKind::kMpc), std::pair("throughput", PolicyKind::kThroughput),
        std::pair("load", PolicyKind::kLoad), std::pair("reference", PolicyKind::kReference)}) {
    if (text == name) {
      config.policy = kind;
      return {};
    }
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("the policy must be mpc, throughput, load, reference or static:N, not '{}'",
                  text));
}

std::string name_of(const PlannerConfig& config) {
  switch (config.policy) {
    case PolicyKind::kThroughput:
      return "throughput";
    case PolicyKind::kLoad:
      return "load";
    case PolicyKind::kReference:
      return "reference";
    case PolicyKind::kStatic:
      return fmt::format("static:{}", config.static_workers);
    case PolicyKind::kMpc:
      break;
  }
  return "mpc";
}

Result<LoadTarget> find_target(std::string_view name) {
  for (const auto& [known, target] :
       {std::pair("sla", LoadTarget::kSla), std::pair("throughput", LoadTarget::kThroughput),
        std::pair("latency", LoadTarget::kLatency), std::pair("load", LoadTarget::kLoad)}) {
    if (name == known) {
      return target;
    }
  }
  return Error(Code::kInvalidArgument,
               fmt::format("the target must be sla, throughput, latency or load, not '{}'", name));
}

PoolFootprint pool_of(const PlannerConfig& c, bool prefill) {
  const uint32_t own =
      prefill && c.prefill_gpus_per_worker > 0 ? c.prefill_gpus_per_worker : c.gpus_per_worker;
  const uint32_t least =
      prefill && c.prefill_min_workers > 0 ? c.prefill_min_workers : c.min_workers;
  return {.gpus_per_worker = own, .min_workers = std::max(least, c.coexistence_floor)};
}

Status validate(const PlannerConfig& c) {
  const auto refuse = [](std::string text) {
    return Error(Code::kInvalidArgument, std::move(text));
  };
  if (!(c.ttft_ms > 0) || !(c.itl_ms > 0)) {
    return refuse("the goals for TTFT and ITL must be above 0 ms");
  }
  if (!(c.quantile > 0.5 && c.quantile < 1)) {
    return refuse("the quantile must be above 0.5 and below 1");
  }
  if (!(c.load_interval_s > 0) || !(c.throughput_interval_s > 0) || !(c.mpc_interval_s > 0)) {
    return refuse("intervals must be above 0 s");
  }
  if (c.policy == PolicyKind::kReference && c.load_interval_s >= c.throughput_interval_s) {
    return refuse(
        fmt::format("the load interval ({} s) must be shorter than the throughput interval ({} s)",
                    c.load_interval_s, c.throughput_interval_s));
  }
  if (!(c.start_up_s >= 0 && c.start_up_s <= 86'400)) {
    return refuse("the start-up time must be from 0 s to a day");
  }
  if (c.max_workers < std::max(1U, c.min_workers) || c.max_workers > 4096) {
    return refuse(fmt::format("max_workers ({}) must be from min_workers ({}) to 4096",
                              c.max_workers, c.min_workers));
  }
  const PoolFootprint pool = pool_of(c, false), prompts = pool_of(c, true);
  const int64_t least = int64_t{pool.min_workers} * pool.gpus_per_worker +
                        (c.split ? int64_t{prompts.min_workers} * prompts.gpus_per_worker : 0);
  if (c.max_gpu_budget >= 0 && least > c.max_gpu_budget) {
    return refuse(fmt::format(
        "the smallest fleet takes {} GPUs ({} workers of {}{}), the budget is {}", least,
        pool.min_workers, pool.gpus_per_worker,
        c.split
            ? fmt::format(" and {} for prompts of {}", prompts.min_workers, prompts.gpus_per_worker)
            : std::string(),
        c.max_gpu_budget));
  }
  if (c.power.limit_watts >= 0) {
    const uint32_t fewest = std::max(c.min_workers, c.coexistence_floor);
    if (!(c.power.decode_watts > 0)) {
      return refuse("a power limit needs the watts of a worker (decode_watts, prefill_watts)");
    }
    if (fewest * c.power.decode_watts > c.power.limit_watts) {
      return refuse(fmt::format(
          "the smallest fleet draws {} W ({} workers of {} W), the limit is {} W",
          fewest * c.power.decode_watts, fewest, c.power.decode_watts, c.power.limit_watts));
    }
  }
  if (c.min_gpu_budget >= 0 && c.max_gpu_budget >= 0 && c.min_gpu_budget > c.max_gpu_budget) {
    return refuse(fmt::format("min_gpu_budget ({}) is above max_gpu_budget ({})", c.min_gpu_budget,
                              c.max_gpu_budget));
  }
  if (c.target == LoadTarget::kLoad &&
      !(c.easy.decode_down >= 0 && c.easy.decode_up > c.easy.decode_down &&
        c.easy.decode_up <= 100 && c.easy.prefill_up >= c.easy.prefill_down)) {
    return refuse(
        "target load needs decode_scale_up_kv_rate above decode_scale_down_kv_rate (percent), and "
        "prefill_scale_up_queue_tokens above prefill_scale_down_queue_tokens");
  }
  if (!(c.spend_limit >= 0 && c.spend_limit <= 10)) {
    return refuse("spend_limit must be from 0 (none) to 10 times what the rules take");
  }
  if (!(c.down_hold_min_s >= 0)) {
    return refuse("down_hold must be 0 s or more");
  }
  if (!(c.scale_down_sensitivity >= 0 && c.scale_down_sensitivity <= 100)) {
    return refuse("scale_down_sensitivity must be from 0 to 100");
  }
  return {};
}

Result<std::unique_ptr<PlannerCore>> PlannerCore::create(const PlannerConfig& config,
                                                         const perf::TimingModel& timing) {
  STATOR_CHECK(validate(config));
  return std::unique_ptr<PlannerCore>(new PlannerCore(config, timing));
}

PlannerCore::PlannerCore(const PlannerConfig& config, const perf::TimingModel& timing)
    : config_(config),
      engine_(timing, config.max_kv_tokens),
      mpc_(config.policy == PolicyKind::kMpc
               ? std::make_unique<ModelPredictive>(config_, timing, engine_)
               : nullptr),
      load_(config.predictor) {
  load_.warm_up(config.past);
}

double PlannerCore::interval_s() const {
  switch (config_.policy) {
    case PolicyKind::kLoad:
    case PolicyKind::kReference:
      return config_.load_interval_s;
    case PolicyKind::kMpc:
      return config_.mpc_interval_s;
    case PolicyKind::kThroughput:
    case PolicyKind::kStatic:
      break;
  }
  return config_.throughput_interval_s;
}

std::string PlannerCore::find_fault(const Inputs& inputs) const {
  if (!inputs.broken.empty()) {
    return inputs.broken;
  }
  if (!sane(inputs.now_s, 1e12) || inputs.now_s < last_s_) {
    return fmt::format("the clock went from {} s to {} s", last_s_, inputs.now_s);
  }
  if (last_s_ >= 0 && inputs.now_s - last_s_ > kJump_s + 10 * interval_s()) {
    return fmt::format("the clock jumped {:.0f} s ahead", inputs.now_s - last_s_);
  }
  if (inputs.traffic) {
    const Traffic& t = *inputs.traffic;
    if (!sane(t.requests, kRequestsMax) || !sane(t.duration_s, 1e9)) {
      return "the number of requests is no number from 0: a counter that was reset?";
    }
    if (t.requests > 0 && (!sane(t.input_tokens, 1e9) || !sane(t.output_tokens, 1e9))) {
      return "the lengths of requests are no numbers from 0";
    }
    if (!sane(t.ended, kRequestsMax) || !sane(t.missed, t.ended)) {
      return "more requests missed a goal than ended";
    }
    if (!sane(t.kv_hit_rate, 1) || !sane(t.accept_length, 1000)) {
      return "the hit rate or the accept length is out of range";
    }
  }
  if (inputs.forecast) {
    const Forecast& f = *inputs.forecast;
    if (!sane(f.requests.value_or(0), kRequestsMax) || !sane(f.input_tokens.value_or(0), 1e9) ||
        !sane(f.output_tokens.value_or(0), 1e9) || !sane(f.kv_hit_rate.value_or(0), 1) ||
        !sane(f.accept_length.value_or(1), 1000)) {
      return "a plugin's prediction is no number from 0";
    }
  }
  const std::string fault = fault_of(inputs.decode, "decode");
  return fault.empty() ? fault_of(inputs.prefill, "prefill") : fault;
}

void PlannerCore::learn(const Inputs& inputs) {
  if (!inputs.traffic || !(inputs.traffic->duration_s > 0)) {
    return;
  }
  const Traffic& t = *inputs.traffic;
  if (t.requests > 0 && t.input_tokens > 0) {
    means_ = {.input_tokens = t.input_tokens,
              .output_tokens = std::max(1.0, t.output_tokens),
              .kv_hit_rate = t.kv_hit_rate,
              .accept_length = std::max(1.0, t.accept_length)};
  }
  if (inputs.forecast) {
    means_.kv_hit_rate = inputs.forecast->kv_hit_rate.value_or(means_.kv_hit_rate);
    means_.accept_length =
        std::max(1.0, inputs.forecast->accept_length.value_or(means_.accept_length));
  }
  idle_s_ = t.requests > 0 ? 0 : idle_s_ + t.duration_s;
  window_s_ += t.duration_s;
  window_requests_ += t.requests;
  window_input_ += t.requests * t.input_tokens;
  window_output_ += t.requests * t.output_tokens;
}

/// The forecast of the next window, once a window is full.
void PlannerCore::plan_throughput(const Inputs& inputs, Decision& decision) {
  if (window_s_ + 1e-6 < config_.throughput_interval_s) {
    return;
  }
  const double count = std::max(window_requests_, 1e-9);
  load_.add({.requests = window_requests_,
             .input_tokens = window_input_ / count,
             .output_tokens = window_output_ / count});
  const LoadWindow next = load_.next();
  const Forecast said = inputs.forecast.value_or(Forecast());
  const double rate =
      said.requests ? *said.requests / inputs.traffic->duration_s : next.requests / window_s_;
  const double input = said.input_tokens.value_or(next.input_tokens);
  const double output = said.output_tokens.value_or(next.output_tokens);
  window_s_ = window_requests_ = window_input_ = window_output_ = 0;
  decision.predicted_requests_per_s = rate;
  if (!(input > 0) || !(output > 0)) {
    decision.reason = "model_not_ready";
    decision.text = "no request has been seen yet";
    return;
  }
  const CapacityQuery query{.input_tokens = input,
                            .output_tokens = output,
                            .kv_hit_rate = means_.kv_hit_rate,
                            .accept_length = means_.accept_length,
                            .ttft_ms = config_.ttft_ms,
                            .itl_ms = config_.itl_ms,
                            .max_num_batched_tokens = config_.max_num_batched_tokens,
                            .max_num_seqs = config_.max_num_seqs};
  const auto size = [&](const Capacity& capacity, bool prefill) {
    return static_cast<uint32_t>(
        std::clamp(std::ceil(rate / std::max(capacity.requests_per_s, 1e-9)),
                   double{1} * pool_of(config_, prefill).min_workers, 1e6));
  };
  const bool split = inputs.prefill.expected > 0 || inputs.prefill.ready > 0;
  const Capacity capacity =
      split ? find_decode_capacity(engine_, query) : find_capacity(engine_, query);
  const uint32_t workers = size(capacity, false);
  decision.estimated_ttft_ms = capacity.ttft_ms;
  decision.estimated_itl_ms = capacity.itl_ms;
  decision.engine_requests_per_s = capacity.requests_per_s;
  if (split) {
    const Capacity prompts = find_prefill_capacity(engine_, query);
    decision.prefill_engine_requests_per_s = prompts.requests_per_s;
    decision.estimated_ttft_ms = prompts.ttft_ms;
    decision.prefill_workers = size(prompts, true);
  }
  const std::string text =
      fmt::format("{:.2f} requests/s of {:.0f} + {:.0f} tokens expected, one engine takes {:.2f}{}",
                  rate, input, output, capacity.requests_per_s,
                  capacity.eligible ? "" : " and misses a goal even so");
  if (config_.policy == PolicyKind::kReference) {
    lower_bound_ = workers;
    decision.reason = "set_lower_bound";
    decision.text = fmt::format("at least {} workers: {}", workers, text);
    return;
  }
  decision.workers = workers;
  decision.reason = "scale";
  decision.text = fmt::format("{} workers: {}", workers, text);
}

void PlannerCore::plan_load(const Inputs& inputs, Decision& decision) {
  const PoolState& pool = inputs.decode;
  const bool split = inputs.prefill.expected > 0 || inputs.prefill.ready > 0;
  const LoadVerdict verdict = split ? judge_decode(pool, means_, engine_, config_)
                                    : judge_aggregated(pool, means_, engine_, config_);
  decision.estimated_ttft_ms = verdict.ttft_ms;
  decision.estimated_itl_ms = verdict.itl_ms;
  int64_t wanted = int64_t{pool.expected} + verdict.change;
  std::string reason(verdict.reason);
  if (lower_bound_ && wanted < int64_t{*lower_bound_} && verdict.reason != "scaling_in_progress") {
    reason = verdict.change < 0 ? "scale_down_capped_by_throughput" : reason;
    wanted = *lower_bound_;
  }
  if (split) {
    const LoadVerdict prompts = judge_prefill(inputs.prefill, means_, engine_, config_);
    const bool blocked =
        prompts.reason == "scaling_in_progress" || verdict.reason == "scaling_in_progress";
    decision.prefill_workers =
        static_cast<uint32_t>(int64_t{inputs.prefill.expected} + (blocked ? 0 : prompts.change));
    wanted = blocked ? int64_t{pool.expected} : wanted;
    decision.estimated_ttft_ms = prompts.ttft_ms;
  }
  decision.workers = static_cast<uint32_t>(std::max<int64_t>(wanted, 0));
  decision.reason = reason;
  decision.text =
      fmt::format("{} → {} workers ({}): TTFT {:.0f} ms and ITL {:.1f} ms at the slowest engine",
                  pool.expected, wanted, reason, verdict.ttft_ms, verdict.itl_ms);
}

/// Prefill workers beside a fleet that mpc sizes: as many as the expected rate needs with room for
/// bursts, fewer only once fewer would have done for two start-up times.
void PlannerCore::plan_prompts(const Inputs& inputs, Decision& decision) {
  constexpr double kRoom = 1.3;
  constexpr double kHoldMin_s = 120;
  const uint32_t current = inputs.prefill.expected;
  if (current == 0 && inputs.prefill.ready == 0) {
    return;
  }
  decision.prefill_workers = current;
  if (!(means_.input_tokens > 0)) {
    return;
  }
  const Capacity capacity =
      find_prefill_capacity(engine_, {.input_tokens = means_.input_tokens,
                                      .output_tokens = means_.output_tokens,
                                      .kv_hit_rate = means_.kv_hit_rate,
                                      .ttft_ms = config_.ttft_ms,
                                      .itl_ms = config_.itl_ms,
                                      .max_num_batched_tokens = config_.max_num_batched_tokens,
                                      .max_num_seqs = config_.max_num_seqs});
  decision.prefill_engine_requests_per_s = capacity.requests_per_s;
  const auto need = static_cast<uint32_t>(
      std::clamp<double>(std::ceil(kRoom * decision.predicted_requests_per_s /
                                   std::max(capacity.requests_per_s, 1e-9)),
                         std::max(1U, pool_of(config_, true).min_workers), config_.max_workers));
  if (need >= current) {
    prompts_smaller_since_s_ = -1;
    decision.prefill_workers = need;
    return;
  }
  prompts_smaller_since_s_ = prompts_smaller_since_s_ < 0 ? inputs.now_s : prompts_smaller_since_s_;
  if (inputs.now_s - prompts_smaller_since_s_ >= std::max(kHoldMin_s, 2 * config_.start_up_s)) {
    prompts_smaller_since_s_ = -1;
    decision.prefill_workers = need;
  }
}

/// A fleet that nobody uses may go away, and comes back with the first request.
void PlannerCore::plan_idle(const Inputs& inputs, Decision& decision) {
  if (config_.min_workers > 0) {
    return;
  }
  if (inputs.decode.expected == 0) {
    const bool asked = inputs.decode.queued > 0 || (inputs.traffic && inputs.traffic->requests > 0);
    decision.workers = asked ? std::max(1U, decision.workers.value_or(1)) : 0;
    decision.reason = asked ? "scale_up" : "idle";
    decision.text = asked ? "0 → 1 workers: requests came" : "0 workers: nothing comes";
  } else if (idle_s_ >= config_.idle_before_zero_s) {
    decision.workers = 0;
    decision.reason = "scale_down";
    decision.text =
        fmt::format("{} → 0 workers: nothing came for {:.0f} s", inputs.decode.expected, idle_s_);
  }
}

void PlannerCore::clamp(const Inputs& inputs, Decision& decision) const {
  const PoolFootprint pool = pool_of(config_, false), prompts = pool_of(config_, true);
  const GpuBudget budget{.min_gpus = config_.min_gpu_budget, .max_gpus = config_.max_gpu_budget};
  const bool split = inputs.prefill.expected > 0 || inputs.prefill.ready > 0;
  if (split && (decision.workers || decision.prefill_workers)) {
    const PairSize wanted{
        .prefill = std::max(prompts.min_workers,
                            decision.prefill_workers.value_or(inputs.prefill.expected)),
        .decode = std::max(pool.min_workers, decision.workers.value_or(inputs.decode.expected))};
    const PairSize size = clamp_pair(wanted, prompts, pool, budget);
    decision.prefill_workers = std::min(size.prefill, config_.max_workers);
    decision.workers = std::min(size.decode, config_.max_workers);
  } else if (decision.workers) {
    const uint32_t wanted =
        std::min(std::max(*decision.workers, pool.min_workers), config_.max_workers);
    decision.workers = wanted == 0 ? 0 : clamp_single(wanted, pool, budget);
  }
  limit_power(inputs, {prompts.min_workers, pool.min_workers}, decision);
}

/// Last of all: whatever was decided, the fleet draws no more than it may.
void PlannerCore::limit_power(const Inputs& inputs, PairSize least, Decision& decision) const {
  if (config_.power.limit_watts < 0 || (!decision.workers && !decision.prefill_workers)) {
    return;
  }
  const PairSize current{inputs.prefill.expected, inputs.decode.expected};
  const PairSize wanted{decision.prefill_workers.value_or(current.prefill),
                        decision.workers.value_or(current.decode)};
  const PairSize fewest{current.prefill > 0 ? least.prefill : 0, least.decode};
  const PowerClamp clamped = clamp_power(current, wanted, fewest, config_.power);
  if (!clamped.staged && !clamped.limited) {
    return;
  }
  decision.workers = clamped.size.decode;
  if (decision.prefill_workers) {
    decision.prefill_workers = clamped.size.prefill;
  }
  decision.reason = clamped.staged ? "power_rebalance_staged" : "capped_by_power";
  decision.text += fmt::format("; {} workers draw {:.0f} of {:.0f} W{}",
                               clamped.size.prefill + clamped.size.decode,
                               config_.power.draw(clamped.size), config_.power.limit_watts,
                               clamped.staged ? ", the growing pool waits for the other" : "");
}

/// What plugins have to say about the sizes that the policy proposes.
void PlannerCore::hear(const Inputs& inputs, Decision& decision) const {
  constexpr uint32_t kOwnPriority = 10;
  if (inputs.opinions.empty()) {
    return;
  }
  const bool split = inputs.prefill.expected > 0 || inputs.prefill.ready > 0;
  StageResult sizes{.decode = inputs.decode.expected};
  Opinion own{.plugin = "policy", .priority = kOwnPriority};
  if (split) {
    sizes.prefill = inputs.prefill.expected;
  }
  if (decision.workers) {
    own.targets.push_back({.workers = *decision.workers});
  }
  if (split && decision.prefill_workers) {
    own.targets.push_back({.prefill = true, .workers = *decision.prefill_workers});
  }
  std::vector<Opinion> proposals = inputs.opinions;
  proposals.push_back(std::move(own));
  for (const Stage stage : {Stage::kPropose, Stage::kReconcile, Stage::kConstrain}) {
    sizes = merge(stage, sizes, proposals);
    if (!sizes.rejected_by.empty()) {
      decision.workers.reset();
      decision.prefill_workers.reset();
      decision.reason = "rejected_by_plugin";
      decision.text =
          fmt::format("no decision: rejected in {} by {}", name_of(stage), sizes.rejected_by);
      return;
    }
  }
  const bool changed =
      sizes.decode != decision.workers || (split && sizes.prefill != decision.prefill_workers);
  decision.workers = sizes.decode;
  decision.prefill_workers = split ? sizes.prefill : decision.prefill_workers;
  if (changed) {
    decision.reason = "set_by_plugin";
    decision.text +=
        fmt::format("; {} workers with the word of {}", sizes.decode.value_or(0), sizes.decided_by);
  }
}

Decision PlannerCore::tick(const Inputs& inputs) {
  Decision decision = propose(inputs);
  finish(inputs, decision);
  return decision;
}

Decision PlannerCore::propose(const Inputs& inputs) {
  proposed_ = false;
  Decision decision;
  decision.next_s = inputs.now_s + interval_s();
  const std::string fault = find_fault(inputs);
  if (!fault.empty()) {
    // Without measurements neither down nor up: the fleet stays as it is.
    decision.reason = "metrics_invalid";
    decision.text = "no decision: " + fault;
    last_s_ = std::isfinite(inputs.now_s) ? inputs.now_s : last_s_;
    decision.next_s = std::isfinite(decision.next_s) ? decision.next_s : last_s_ + interval_s();
    return decision;
  }
  last_s_ = inputs.now_s;
  if (!inputs.traffic) {
    decision.reason = "no_traffic_data";
    decision.text = "no decision: nothing was measured since the last tick";
    return decision;
  }
  config_.min_workers =
      std::min(inputs.min_workers.value_or(config_.min_workers), config_.max_workers);
  config_.prefill_min_workers = std::min(
      inputs.prefill_min_workers.value_or(config_.prefill_min_workers), config_.max_workers);
  learn(inputs);
  switch (config_.policy) {
    case PolicyKind::kMpc:
      mpc_->decide(inputs, decision);
      plan_prompts(inputs, decision);
      break;
    case PolicyKind::kThroughput:
      plan_throughput(inputs, decision);
      break;
    case PolicyKind::kLoad:
      plan_load(inputs, decision);
      break;
    case PolicyKind::kReference:
      plan_throughput(inputs, decision);
      plan_load(inputs, decision);
      break;
    case PolicyKind::kStatic:
      decision.workers = config_.static_workers;
      decision.reason = "static";
      decision.text = fmt::format("{} workers", config_.static_workers);
      break;
  }
  plan_idle(inputs, decision);
  proposed_ = true;
  return decision;
}

void PlannerCore::finish(const Inputs& inputs, Decision& decision) {
  if (!proposed_) {
    return;
  }
  hear(inputs, decision);
  clamp(inputs, decision);
  if (!inputs.stable) {
    decision.workers.reset();
    decision.prefill_workers.reset();
    decision.reason = "scaling_in_progress";
    decision.text = "no decision: the last change is still under way; " + decision.text;
  }
}

std::string journal_line(const Inputs& inputs, const Decision& decision) {
  return fmt::format("{{\"inputs\":{},\"decision\":{}}}\n", render_json(inputs),
                     render_json(decision));
}

Result<JournalCheck> replay_journal(std::string_view lines, PlannerCore& core,
                                    const std::function<void(const Inputs&)>& before) {
  JournalCheck check;
  size_t number = 0;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    ++number;
    if (line.empty()) {
      continue;
    }
    const std::string context = fmt::format("line {}", number);
    STATOR_TRY(const json::Value value, json::parse(line), context);
    const json::Value* inputs = value.find("inputs");
    const json::Value* expected = value.find("decision");
    if (inputs == nullptr || expected == nullptr) {
      continue;  // the configuration, or a note
    }
    STATOR_TRY(const Inputs parsed, parse_inputs(json::to_text(*inputs)), context);
    if (before) {
      before(parsed);
    }
    const std::string got = render_json(core.tick(parsed)), wanted = json::to_text(*expected);
    ++check.ticks;
    if (got != wanted) {
      ++check.differences;
      if (check.first_difference.empty()) {
        check.first_difference = fmt::format("line {}: expected {}, got {}", number, wanted, got);
      }
    }
  }
  return check;
}

}  // namespace stator::planner
