// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/engine_memory.h"

#include <algorithm>
#include <array>

namespace stator::perf {

double sequence_bytes(const EngineModel& engine, double tokens) {
  double bytes = tokens * engine.kv_bytes_per_token() + engine.state_bytes();
  for (const KvWindow& window : engine.windows()) {
    bytes += std::min(tokens, window.tokens) * window.bytes_per_token;
  }
  return bytes / engine.spec().parallel.pp;
}

MemoryUse memory_of(const EngineModel& engine, double tokens, double sequences, double length) {
  const EngineSpec& spec = engine.spec();
  const ModelConfig& m = spec.model;
  const Parallelism& p = spec.parallel;
  constexpr double kMib = 1024.0 * 1024;
  const size_t rank = p.tp >= 8 ? 3 : p.tp >= 4 ? 2 : p.tp >= 2 ? 1 : 0;
  const bool sglang = spec.backend == Backend::kSglang;
  static constexpr std::array<double, 4> kDense = {11, 6.5, 5, 5}, kMoe = {22, 13, 10, 10};
  static constexpr std::array<double, 4> kDenseSg = {14, 8.5, 6.5, 6.5}, kMoeSg = {28, 17, 13, 13};
  const double factor =
      sglang ? (m.is_moe() ? kMoeSg : kDenseSg)[rank] * 1.15 : (m.is_moe() ? kMoe : kDense)[rank];
  MemoryUse use;
  use.weights = engine.weight_bytes();
  use.activations = std::max((sglang ? 90 : 70) * kMib, 2 * tokens * m.hidden * factor);
  use.kv = sequences * sequence_bytes(engine, length);
  use.communication = SystemSpec::communication_bytes(std::max(p.tp, p.moe_ep));
  use.other = spec.system.other_bytes * (sglang ? 1.2 : 1);
  use.capacity = spec.system.memory_bytes;
  return use;
}

double kv_tokens_max(const EngineModel& engine, double tokens, double length) {
  const MemoryUse use = memory_of(engine, tokens, 0, 0);
  const double fixed = use.total();
  double room = 0;
  if (engine.spec().backend == Backend::kTrtllm) {  // a fraction of what is free
    room = (use.capacity - fixed) * 0.9 * 0.985 * 0.98;
  } else {  // a fraction of all
    room = use.capacity * 0.92 * 0.98 - fixed;
  }
  const double each = sequence_bytes(engine, length) / length;
  return room <= 0 ? 0 : each > 0 ? std::min(room / each, 1e12) : 1e12;
}

}  // namespace stator::perf
