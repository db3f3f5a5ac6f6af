// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/inference/pool.h"
#include "stator/perf/timing_model.h"

namespace stator::engine {

/// One sequence of a pass. `tokens` live until run() returns.
struct PoolSequence {
  std::span<const TokenId> tokens;  ///< never empty, at most max_model_len()
  uint32_t first_length = 0;        ///< tokens before the second text of a pair, else all
  inference::PoolTask task = inference::PoolTask::kEmbed;
  bool activate = true;
};

/// The part of a pooling engine that differs between real and simulated ones. Called by one thread.
/// The numbers of a sequence must not depend on what else is in the pass.
class PoolRunner {
 public:
  virtual ~PoolRunner() = default;
  virtual const inference::PoolAbility& ability() const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual uint32_t max_model_len() const = 0;  ///< tokens per sequence
  /// Numbers per row of a task in ability().
  virtual uint32_t width(inference::PoolTask task) const = 0;
  /// Appends the rows of sequences[i] to out[i].
  virtual void run(std::span<const PoolSequence> sequences, std::span<std::vector<float>> out) = 0;
  /// How long a pass lasts at least: see ModelRunner::pass_time.
  virtual Duration pass_time(const perf::PassShape& /*shape*/) const { return Duration::zero(); }
};

}  // namespace stator::engine
