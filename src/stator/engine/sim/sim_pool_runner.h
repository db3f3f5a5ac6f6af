// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "stator/core/result.h"
#include "stator/engine/api/pool_runner.h"

namespace stator::engine {

struct SimPoolConfig {
  uint32_t vocab_size = 32'000;
  uint32_t max_model_len = 32'768;
  uint64_t seed = 0;     ///< another seed is another model
  uint32_t width = 384;  ///< numbers per vector, 1 … 65,536
  uint32_t classes = 3;
  inference::PoolTasks tasks = {inference::PoolTask::kEmbed, inference::PoolTask::kTokenEmbed,
                                inference::PoolTask::kClassify, inference::PoolTask::kScore};
  std::shared_ptr<const perf::TimingModel> timing;  ///< null: no waiting; shared with other engines
  double speedup = 1;  ///< divides that time; 0 or infinity: no waiting
};

/// A pooling model made of a hash. The vector of a token is a function of its id and `seed`; that
/// of a text is the sum over its tokens, normalised: texts with the same tokens are alike, whatever
/// their order, so that tests can tell near from far. Scores are the part of the first text's
/// tokens that the second one has; classes are drawn from the text's hash.
Result<std::unique_ptr<PoolRunner>> make_sim_pool_runner(const SimPoolConfig& config);

}  // namespace stator::engine
