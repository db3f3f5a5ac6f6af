// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/perf/engine_model.h"

namespace stator::perf {

/// Bytes on the fullest GPU (§ of each part in docs/benchmarks/planning.md).
struct MemoryUse {
  double weights = 0, activations = 0, kv = 0, communication = 0, other = 0;
  double capacity = 0;
  double total() const { return weights + activations + kv + communication + other; }
};

/// KV and states of one sequence of so many tokens, on one GPU.
double sequence_bytes(const EngineModel& engine, double tokens);
/// With `tokens` in a pass, and `sequences` of so many tokens each on one rank of attention.
MemoryUse memory_of(const EngineModel& engine, double tokens, double sequences, double length);
/// Tokens of sequences of `length` that one rank of attention can hold when prompts of `tokens` are
/// computed at once; 0: the weights alone do not fit. Windows and states of linear attention take
/// room per sequence, so that short ones cost more.
double kv_tokens_max(const EngineModel& engine, double tokens, double length);

}  // namespace stator::perf
