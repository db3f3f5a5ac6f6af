// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/pool_runner.h"

namespace stator::engine {

struct PoolingConfig {
  std::string kind = "sim";
  std::string version = "1";
  std::string name = "pool";                ///< value of the `engine` label on metrics
  uint32_t max_num_batched_tokens = 8'192;  ///< of the sequences of one pass; a longer one is alone
  uint32_t max_model_len = 0;               ///< tokens of a sequence; 0: what the runner allows
  uint32_t waiting_max = 4'096;             ///< requests not yet begun; beyond: kOverloaded
  uint32_t block_size = 16;                 ///< for EngineInfo; nothing is cached
};

/// An engine for requests with `pool`: one thread that fills passes with sequences of all requests,
/// higher priority first, then in order of arrival. Nothing is cached between passes.
///
/// With `generating`, requests without `pool` go to that engine, and its facts are told beside
/// these; a session's sink is then called by two threads. Without, they are kUnsupported.
///
/// Requests are refused (kInvalidArgument) for a task the runner lacks, a token outside the
/// vocabulary, a sequence longer than max_model_len, or an answer of more than kPoolValuesMax
/// numbers. A cancelled request is left out of the next pass. stop() fails what has not ended with
/// kDraining. Threads, `clock` and `metrics` as make_engine().
std::unique_ptr<Engine> make_pooling_engine(const PoolingConfig& config,
                                            std::unique_ptr<PoolRunner> runner, Clock& clock,
                                            Metrics& metrics,
                                            std::unique_ptr<Engine> generating = nullptr);

/// Whether a runner of this kind can do `request`, which has a pool part; kInvalidArgument names
/// what is wrong. Pure.
struct PoolLimits {
  const inference::PoolAbility& ability;
  uint32_t vocab_size;
  uint32_t max_model_len;  ///< 0: not known here
};
Status check_pool_request(const inference::EngineRequest& request, const PoolLimits& limits);

}  // namespace stator::engine
