// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {

/// A length to draw: of prompts and answers in tokens, of pauses in milliseconds.
struct LengthConfig {
  std::string distribution = "fixed";  ///< fixed, normal, lognormal or exponential
  double mean = 1;
  double std = 0;  ///< of normal and lognormal
};

/// Requests made up from a seed. A session is one request, or several turns whose prompts grow by
/// answer and new text, or with `fan_out` an agent: a request, so many sub-agents that go on from
/// it side by side for `turns` turns each, and a last request that waits for all of them.
struct WorkloadConfig {
  uint64_t requests = 0;  ///< at most; a session may be cut short
  /// constant, poisson, gamma, diurnal (poisson whose rate is a sine) or bursts
  std::string arrivals = "poisson";
  double rate = 1;                           ///< sessions per second, on average
  double burstiness = 1;                     ///< shape of gamma: 1 = poisson, smaller = burstier
  uint32_t burst = 8;                        ///< sessions at once, of bursts
  Duration period = std::chrono::hours(24);  ///< of diurnal, which begins at its lowest
  double swing = 0.8;                        ///< of diurnal: rate · (1 ± swing)
  LengthConfig input{.mean = 1024};          ///< of each turn, behind what is shared or was said
  LengthConfig output{.mean = 128};
  std::vector<std::pair<uint32_t, uint32_t>> lengths;  ///< drawn from instead, if any
  uint32_t prefix_tokens = 0;                          ///< in front of each session …
  uint32_t prefix_groups = 1;                          ///< … one of so many
  double prefix_skew = 0;                              ///< Zipf exponent of their popularity
  uint32_t turns = 1;
  LengthConfig pause{.mean = 0};  ///< before a further turn: reading, or a tool that runs
  uint32_t fan_out = 0;
  uint32_t block_tokens = 64;  ///< per hash id
  uint64_t seed = 42;
};

std::vector<std::string> arrival_names();
std::vector<std::string> length_names();

/// kInvalidArgument names the value to change. The same configuration gives the same requests.
Result<std::unique_ptr<TraceSource>> make_workload(const WorkloadConfig& config);

}  // namespace stator::simulator
