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
 {0.5498, 0.1123, 10.44, 0.5185, 34.74, 1, 1, 0.01661, -0.005854, -0.003155, 0.000936}},
{perf::PartsOf::kLight, "sglang", "disagg",
 {1.359, 0.09743, 1.017, 0.5236, 10.16, 0.9993, 1, -0.0005554, 0.0006666, -6.461e-06, -7.089e-05}},
{perf::PartsOf::kLight, "trtllm", "agg",
 {0.6349, 0.05839, 4.498, 0.3629, 50.68, 1, 1, 0.01214, -0.004479, -0.008035, 0.001019}},
{perf::PartsOf::kLight, "trtllm", "disagg",
 {0.7863, 0.05033, 1.041, 0.4886, 47.28, 1.007, 0.9997, -0.0004358, -0.001358, -0.001866,
  -0.001796}},
{perf::PartsOf::kLight, "vllm", "agg",
 {1.159, 0.05156, 4.516, 0.4729, 11.54, 1, 1, 0.003751, 0.002687, -0.003643, 0.06883}},
{perf::PartsOf::kLight, "vllm", "disagg",
 {1.054, 0.04192, 1.001, 0.4997, 204.9, 0.9989, 0.9999, -0.001427, 0.0009293, -3.884e-06,
  -0.0004834}},
{perf::PartsOf::kMeasured, "sglang", "agg",
 {0.8024, 0.09628, 9.445, 0.5538, 54.85, 1, 1, 0.04226, -0.00919, -0.001882, 0.0009663}},
{perf::PartsOf::kMeasured, "sglang", "disagg",
 {1.441, 0.1023, 1.037, 0.2421, 10.49, 1.001, 1, -0.001072, -0.0006906, -2.963e-06, -0.002001}},
{perf::PartsOf::kMeasured, "trtllm", "agg",
 {0.8872, 0.0561, 1.155, 0.4289, 80.76, 1, 1, 0.07636, -0.03276, -0.00414, 9.877e-06}},
{perf::PartsOf::kMeasured, "trtllm", "disagg",
 {0.7922, 0.04591, 1.046, 0.4837, 37.08, 1.039, 0.9996, -0.001097, -0.001555, -0.00179, -0.002938}},
{perf::PartsOf::kMeasured, "vllm", "agg",
 {1.366, 0.05146, 3.998, 0.3788, 10.42, 1, 1, 0.07131, -0.0004497, -0.001063, 0.008431}},
{perf::PartsOf::kMeasured, "vllm", "disagg",
 {1.086, 0.03281, 1.01, 0.4914, 10.2, 0.9984, 0.9998, -0.001559, 0.000147, 7.151e-06, -0.001474}},
}};
inline constexpr std::array<FleetRow, 3> kFleets = {{
{"sglang", {4, 0.5}, {0.1, 0.4}, 1, 1},
{"trtllm", {8, 0.4}, {0.05, 0.2}, 1.357, 0.6325},
{"vllm", {8, 0.4}, {0.05, 0.2}, 1.357, 0.6325},
}};
// clang-format on

}  // namespace stator::configurator::detail
