// SPDX-License-Identifier: Apache-2.0
#pragma once

// Written by bench/planning/fit_efficiency.py.

#include <array>
#include <string_view>

#include "stator/configurator/serving_point.h"

namespace stator::configurator::detail {

struct QueueRow {
  perf::PartsOf parts;
  std::string_view backend, mode;
  QueueModel queue;
};
/// Engines of one side: (requests at once / (per_gpu · GPUs of an engine)) ^ power.
struct WorkersRule {
  double per_gpu, power;
};
/// `ttft` and `itl`: what such deployments were measured to take over what the model says.
struct FleetRow {
  std::string_view backend;
  WorkersRule prefill, decode;
  double ttft, itl;
};

// clang-format off
inline constexpr std::array<QueueRow, 12> kQueues = {{
{perf::PartsOf::kLight, "sglang", "agg",
 {0.3851, 0.07896, 8.671, 0.557, 10.16, 1, 1, 0.0009093, -0.001903, -0.003674, -0.0008374}},
{perf::PartsOf::kLight, "sglang", "disagg",
 {1.091, 0.08999, 1.021, 0.5344, 10.98, 1.001, 1, -0.0004019, 0.0002722, -1.734e-07, -0.0003502}},
{perf::PartsOf::kLight, "trtllm", "agg",
 {0.7617, 0.05207, 4.29, 0.2381, 54.84, 1, 1, 0.04149, -0.001674, -0.007425, 0.004604}},
{perf::PartsOf::kLight, "trtllm", "disagg",
 {0.9788, 0.05634, 7.479, 0.4986, 9.7, 1.002, 1, 0.001319, 0.002853, -0.001463, 0.006325}},
{perf::PartsOf::kLight, "vllm", "agg",
 {1.302, 0.05563, 4.893, 0.4701, 10.15, 1, 1, 0.004299, 0.002165, -0.004654, 0.06785}},
{perf::PartsOf::kLight, "vllm", "disagg",
 {3.255, 0.02779, 1.005, 0.4979, 10.16, 0.999, 1, -0.001754, -2.858e-05, 4.672e-06, -0.001901}},
{perf::PartsOf::kMeasured, "sglang", "agg",
 {0.8812, 0.05288, 4.845, 0.9866, 98.72, 1, 1, 0.1521, -0.001735, -0.0002237, 0.005588}},
{perf::PartsOf::kMeasured, "sglang", "disagg",
 {0.8072, 0.07821, 1.003, 0.4667, 97.11, 1.001, 0.9994, 0.001934, 0.000326, -8.842e-07, 0.002599}},
{perf::PartsOf::kMeasured, "trtllm", "agg",
 {1.037, 0.04921, 1.2, 0.2379, 87.63, 1, 1, 0.1103, -0.003515, -0.003215, 0.002499}},
{perf::PartsOf::kMeasured, "trtllm", "disagg",
 {0.9521, 0.04819, 6.94, 0.4845, 9.809, 1.006, 0.9997, -0.0001693, 0.001289, -0.001647, 0.00141}},
{perf::PartsOf::kMeasured, "vllm", "agg",
 {1.116, 0.0456, 5.513, 0.4436, 10.69, 1, 1, 0.001745, 0.005982, -0.002491, 0.07498}},
{perf::PartsOf::kMeasured, "vllm", "disagg",
 {1.155, 0.01469, 1.015, 0.4885, 10.33, 0.999, 0.9998, -0.001843, 3.782e-05, 5.569e-06, -0.001916}},
}};
inline constexpr std::array<FleetRow, 3> kFleets = {{
{"sglang", {4, 0.4}, {0.1, 0.3}, 0.8584, 0.9265},
{"trtllm", {4, 0.3}, {0.2, 0.2}, 1.357, 0.6325},
{"vllm", {4, 0.3}, {0.2, 0.2}, 1.357, 0.6325},
}};
// clang-format on

}  // namespace stator::configurator::detail
