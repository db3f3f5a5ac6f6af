// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/engine/api/engine.h"
#include "stator/inference/sampling.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/prom_text.h"

namespace stator::fake_engine {

inline constexpr std::array kSecondsBounds{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                           0.1,   0.25,  0.5,  0.75, 1.0,  2.5,  5.0,
                                           7.5,   10.0,  20.0, 40.0, 80.0, 160.0};
inline constexpr std::array kTokenBounds{1.0,   2.0,   5.0,    10.0,   20.0,   50.0,   100.0,
                                         200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0};

/// What one rank of a fake vLLM has counted.
struct VllmCounters {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t external_queries = 0;
  uint64_t external_hits = 0;
  uint64_t stopped = 0;
  uint64_t length = 0;
  uint64_t aborted = 0;
  uint64_t failed = 0;
  PromHistogram time_to_first_token{kSecondsBounds};
  PromHistogram inter_token{kSecondsBounds};
  PromHistogram end_to_end{kSecondsBounds};
  PromHistogram prompt_lengths{kTokenBounds};
  PromHistogram generation_lengths{kTokenBounds};
};

/// The hand-off side of a rank.
struct VllmHandoffFigures {
  uint32_t pinned_blocks = 0;
  uint64_t expired = 0;
  uint64_t late_claims = 0;
};

/// What is scraped besides the counters.
struct VllmGauges {
  engine::LoadReport load;
  VllmHandoffFigures handoffs;
  uint32_t rank = 0;
  uint32_t block_size = 16;  ///< as announced
  uint32_t sleep_level = 0;
  double unix_seconds = 0;
  std::string running_adapters;
};

/// The /metrics page of one rank, in the names of the release.
std::string render_vllm_metrics(const FakeConfig& config, const VllmCounters& counters,
                                const VllmGauges& gauges);

}  // namespace stator::fake_engine
