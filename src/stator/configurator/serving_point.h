// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/perf/engine_model.h"

namespace stator::configurator {

/// Requests that a deployment answers: equal lengths, and so many at once that each engine always
/// has its batch full.
struct Workload {
  double input_tokens = 4000;
  double output_tokens = 1000;
  double cached_tokens = 0;  ///< of the prompt, found in the prefix cache
};

/// What clients see of a deployment, and what it yields.
struct ServingPoint {
  double ttft_ms = 0;
  double itl_ms = 0;  ///< time per output token after the first
  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  double tokens_per_s_per_gpu = 0;   ///< output
  double tokens_per_s_per_user = 0;  ///< of one stream
  double concurrency = 0;
  uint32_t gpus = 0;
};

/// How long requests wait in front of engines, as factors of what a closed loop of clients shows:
/// of the time of a prompt alone, of the prompts of all that came at once, of a step of decodes,
/// and of the wait at a server that is busy a share of the time; and milliseconds. Then what a kind
/// of deployment takes over what its engines take alone, and by which powers the wait grows.
struct QueueModel {
  double prompt = 1;
  double burst = 0.05;
  double step = 1;
  double waiting = 0.5;
  double fixed_ms = 10;
  double decode_scale = 1;
  double prompt_scale = 1;
  double queued_power = 0;  ///< of further requests per place over kDecodesUsual
  double input_power = 0;   ///< of prompt tokens over 1,024
  double output_power = 0;  ///< of answered tokens over 1,024
  double tokens_power = 0;  ///< of prompt tokens of all further requests, over 22,000
};
enum class Mode : uint8_t { kAggregated, kDisaggregated };
/// Fitted together with perf::find_efficiency().
QueueModel find_queue(perf::Backend backend, Mode mode,
                      perf::PartsOf parts = perf::PartsOf::kLight);
/// What is likely of a disaggregated deployment whose size a measurement does not say.
struct FleetGuess {
  double prefill_workers = 1, decode_workers = 1;  ///< not whole numbers
  double ttft_scale = 1, itl_scale = 1;  ///< what such were measured to take over the model
};
/// `concurrency`: requests at once in all; engines of so many GPUs each.
FleetGuess guess_fleet(perf::Backend backend, double concurrency, double prefill_gpus,
                       double decode_gpus);

/// What the times of a deployment are made of, before efficiencies: for fits and explanations.
struct PointParts {
  perf::PassParts decode{};  ///< of one step
  perf::PassParts prompt{};  ///< what one prompt adds to passes
  double batch = 1;          ///< sequences that decode together on one rank
  double others = 0;         ///< prompts that interrupt one request's decoding
  double queued = 0;         ///< further requests per place where prompts are computed
};

/// One kind of engine for both phases; `batch` requests at once on each rank of attention.
PointParts aggregated_parts(const perf::EngineModel& engine, const Workload& work, double batch);
ServingPoint aggregated_point(const perf::EngineModel& engine, const Workload& work, double batch,
                              const QueueModel& queue);

/// Engines for prompts and engines for answers.
struct Disaggregated {
  const perf::EngineModel& prefill;
  const perf::EngineModel& decode;
  double prefill_workers = 1;
  double decode_workers = 1;
  double prefill_batch = 1;
  double decode_batch = 1;  ///< on each rank of attention
};
PointParts disaggregated_parts(const Disaggregated& fleet, const Workload& work);
ServingPoint disaggregated_point(const Disaggregated& fleet, const Workload& work,
                                 const QueueModel& queue);

}  // namespace stator::configurator
