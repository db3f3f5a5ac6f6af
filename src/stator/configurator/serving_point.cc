// SPDX-License-Identifier: Apache-2.0
#include "stator/configurator/serving_point.h"

#include <algorithm>
#include <cmath>

namespace stator::configurator {
namespace {

using perf::EngineModel;
using perf::EnginePass;

/// Prompts are computed in chunks of about so many tokens.
constexpr double kChunkTokens = 8192;
constexpr double kBusyMax = 0.95;

double fresh_tokens(const Workload& work) {
  return std::max(1.0, work.input_tokens - work.cached_tokens);
}

/// As many whole prompts as a chunk holds, and the decodes beside them.
EnginePass mixed_pass(const Workload& work, double decodes) {
  const double fresh = fresh_tokens(work);
  const double prompts = std::max(1.0, std::floor(kChunkTokens / fresh));
  return {.context_requests = prompts,
          .context_tokens = prompts * fresh,
          .context_prefix = work.cached_tokens,
          .decode_requests = decodes,
          .decode_context = work.input_tokens + work.output_tokens / 2};
}

EnginePass decode_pass(const Workload& work, double decodes) {
  return {.decode_requests = decodes, .decode_context = work.input_tokens + work.output_tokens / 2};
}

EnginePass prompt_pass(const Workload& work, double prompts) {
  return {.context_requests = prompts,
          .context_tokens = prompts * fresh_tokens(work),
          .context_prefix = work.cached_tokens};
}

double power(double base, double exponent) {
  return exponent == 0 ? 1 : std::pow(base, exponent);
}

/// Until the first token of a request that meets `queued` others per place where prompts are
/// computed, in a loop of clients.
double first_token_ms(const QueueModel& queue, const Workload& work, double prompt_ms,
                      double decode_ms, double queued, double busy) {
  constexpr double kTokens = 1024;
  constexpr double kQueuedTokens = 22268;  // 8,192 · e
  const double load = std::min(busy, kBusyMax);
  const double wait =
      queue.burst * queued * prompt_ms + queue.waiting * prompt_ms * load / (1 - load);
  return (queue.prompt * prompt_ms + queue.step * decode_ms + queue.fixed_ms + wait) *
         power((queued + 1) / perf::kDecodesUsual, queue.queued_power) *
         power(work.input_tokens / kTokens, queue.input_power) *
         power(std::max(1.0, work.output_tokens) / kTokens, queue.output_power) *
         power(std::max(1.0, queued) * work.input_tokens / kQueuedTokens, queue.tokens_power);
}

void fill_rates(ServingPoint& point, const Workload& work) {
  point.output_tokens_per_s = point.requests_per_s * work.output_tokens;
  point.tokens_per_s_per_gpu = point.output_tokens_per_s / std::max(1U, point.gpus);
  point.tokens_per_s_per_user = point.itl_ms > 0 ? 1e3 / point.itl_ms : 0;
}

}  // namespace

PointParts aggregated_parts(const EngineModel& engine, const Workload& work, double batch) {
  PointParts out;
  out.batch = batch;
  out.decode = engine.parts(decode_pass(work, batch));
  const EnginePass mixed = mixed_pass(work, batch);
  const perf::PassParts both = engine.parts(mixed);
  for (size_t i = 0; i < perf::kParts; ++i) {
    out.prompt[i] = std::max(0.0, both[i] - out.decode[i]) / mixed.context_requests;
  }
  out.others = (batch - 1) / std::max(1.0, work.output_tokens);
  out.queued = batch - 1;
  return out;
}

ServingPoint aggregated_point(const EngineModel& engine, const Workload& work, double batch,
                              const QueueModel& queue) {
  const perf::Parallelism& p = engine.spec().parallel;
  const double outputs = std::max(1.0, work.output_tokens);
  const double decode_ms = engine.step_ms(decode_pass(work, batch));
  const EnginePass mixed = mixed_pass(work, batch);
  // What one prompt adds to the passes of those who decode.
  const double added_ms = std::max(0.0, engine.step_ms(mixed) - decode_ms) / mixed.context_requests;
  ServingPoint point;
  point.itl_ms = decode_ms + added_ms * (batch - 1) / outputs;
  const double cycle_ms = added_ms + point.itl_ms * outputs;
  point.ttft_ms = first_token_ms(queue, work, added_ms, decode_ms, batch - 1,
                                 (batch - 1) * added_ms / cycle_ms) *
                  engine.efficiency().first_token;
  point.gpus = p.gpus();
  point.concurrency = batch * p.dp * p.pp;
  point.requests_per_s =
      point.concurrency * 1e3 / (point.ttft_ms + point.itl_ms * std::max(0.0, outputs - 1));
  fill_rates(point, work);
  return point;
}

PointParts disaggregated_parts(const Disaggregated& fleet, const Workload& work) {
  PointParts out;
  out.batch = fleet.decode_batch;
  out.decode = fleet.decode.parts(decode_pass(work, fleet.decode_batch));
  out.prompt = fleet.prefill.parts(prompt_pass(work, 1));
  const perf::Parallelism& d = fleet.decode.spec().parallel;
  const double total = fleet.decode_batch * d.dp * d.pp * fleet.decode_workers;
  const perf::Parallelism& p = fleet.prefill.spec().parallel;
  out.queued = std::max(0.0, total / (fleet.prefill_workers * p.dp * p.pp) - 1);
  return out;
}

ServingPoint disaggregated_point(const Disaggregated& fleet, const Workload& work,
                                 const QueueModel& queue) {
  const perf::Parallelism& p = fleet.prefill.spec().parallel;
  const perf::Parallelism& d = fleet.decode.spec().parallel;
  const double outputs = std::max(1.0, work.output_tokens);
  const double prompt_ms = queue.prompt_scale *
                           fleet.prefill.step_ms(prompt_pass(work, fleet.prefill_batch)) /
                           fleet.prefill_batch;
  ServingPoint point;
  point.itl_ms = queue.decode_scale * fleet.decode.step_ms(decode_pass(work, fleet.decode_batch));
  point.concurrency = fleet.decode_batch * d.dp * d.pp * fleet.decode_workers;
  const double places = fleet.prefill_workers * p.dp * p.pp;
  const double prompt_rate = places / std::max(prompt_ms, 1e-9) * 1e3;  // per second
  const double decode_rate = point.concurrency * 1e3 / (point.itl_ms * outputs);
  const double queued = std::max(0.0, point.concurrency / places - 1);
  // Each request is at a place for its prompt, once in the time of its answer.
  const double busy = (queued + 1) * prompt_ms / (prompt_ms + point.itl_ms * outputs);
  point.ttft_ms = first_token_ms(queue, work, prompt_ms, point.itl_ms, queued, busy) *
                  fleet.prefill.efficiency().first_token;
  // Hand-overs and uneven arrivals keep both sides from being busy all the time.
  point.requests_per_s = std::min(0.9 * prompt_rate, 0.92 * decode_rate);
  point.gpus =
      static_cast<uint32_t>(fleet.prefill_workers * p.gpus() + fleet.decode_workers * d.gpus());
  fill_rates(point, work);
  return point;
}

}  // namespace stator::configurator
