// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string_view>

#include "stator/configurator/detail/queue_tables.h"
#include "stator/configurator/serving_point.h"

namespace stator::configurator {

QueueModel find_queue(perf::Backend backend, Mode mode, perf::PartsOf parts) {
  const std::string_view name = mode == Mode::kAggregated ? "agg" : "disagg";
  return std::ranges::find_if(detail::kQueues,
                              [&](const detail::QueueRow& row) {
                                return row.parts == parts && row.mode == name &&
                                       row.backend == perf::name_of(backend);
                              })
      ->queue;
}

FleetGuess guess_fleet(perf::Backend backend, double concurrency, double prefill_gpus,
                       double decode_gpus) {
  constexpr double kWorkersMax = 64;
  const auto& row =
      *std::ranges::find(detail::kFleets, perf::name_of(backend), &detail::FleetRow::backend);
  const auto workers = [&](const detail::WorkersRule& rule, double gpus) {
    return std::clamp(std::pow(concurrency / (rule.per_gpu * std::max(1.0, gpus)), rule.power), 1.0,
                      kWorkersMax);
  };
  return {.prefill_workers = workers(row.prefill, prefill_gpus),
          .decode_workers = workers(row.decode, decode_gpus),
          .ttft_scale = row.ttft,
          .itl_scale = row.itl};
}

}  // namespace stator::configurator
