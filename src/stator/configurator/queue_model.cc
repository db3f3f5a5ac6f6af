// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string_view>

#include "stator/configurator/serving_point.h"

namespace stator::configurator {
namespace {

struct Row {
  std::string_view backend, mode;
  QueueModel queue;
};

// Printed by bench/planning/fit_efficiency.py.
// clang-format off
constexpr std::array<Row, 6> kRows = {{
{"sglang", "agg", {0.7397, 0.1384, 39.41, 0.06457, 6.894}},
{"sglang", "disagg", {1.342, 0.007767, 19.98, 0.2408, 2.919}},
{"trtllm", "agg", {0.5558, 0.04333, 2.376, 0.03914, 49.62}},
{"trtllm", "disagg", {1.214, 0.006168, 8.279, 0.2498, 0.5449}},
{"vllm", "agg", {1.953, 0.07498, 3.622, 0.07706, 0.3373}},
{"vllm", "disagg", {3.083, 0.01383, 5.228, 0.5053, 9.845}},
}};
// clang-format on

}  // namespace

QueueModel find_queue(perf::Backend backend, Mode mode) {
  const std::string_view name = mode == Mode::kAggregated ? "agg" : "disagg";
  return std::ranges::find_if(kRows,
                              [&](const Row& row) {
                                return row.backend == perf::name_of(backend) && row.mode == name;
                              })
      ->queue;
}

}  // namespace stator::configurator
