// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/load_or_compute.h"

#include <algorithm>

namespace stator::engine {
namespace {

/// Passes of fewer tokens are dominated by what a pass costs anyway: they say nothing of prompts.
constexpr uint64_t kPromptTokensMin = 16;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void LoadOrCompute::learn(double& mean, double value) {
  mean = mean == 0 ? value : mean + (value - mean) * kWeight;
}

void LoadOrCompute::saw_load(uint64_t blocks, Duration took) {
  if (blocks > 0) {
    learn(seconds_per_block_, seconds(took) / static_cast<double>(blocks));
    loads_ = std::min(loads_ + 1, kLoadsMin);
  }
}

void LoadOrCompute::saw_compute(uint64_t tokens, Duration took) {
  if (tokens >= kPromptTokensMin) {
    learn(seconds_per_token_, seconds(took) / static_cast<double>(tokens));
  }
}

bool LoadOrCompute::worth_loading(uint64_t blocks, uint32_t block_tokens) {
  if (blocks == 0) {
    return false;
  }
  const bool known = loads_ == kLoadsMin && seconds_per_token_ > 0;
  if (!known || seconds_per_block_ <= kMuchSlower * seconds_per_token_ * block_tokens) {
    refused_ = 0;
    return true;
  }
  if (++refused_ >= kProbeEvery) {
    refused_ = 0;
    return true;
  }
  return false;
}

}  // namespace stator::engine
