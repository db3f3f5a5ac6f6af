// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/config.h"
#include "stator/core/result.h"
#include "stator/engine/core/scheduling_rules.h"
#include "stator/perf/linear_timing.h"
#include "stator/perf/timing_model.h"

namespace stator::engine {

/// Of `speedup`, and of it times `decode_speedup`: a pass may take seconds, and virtual time is 64
/// bits of nanoseconds.
inline constexpr double kSpeedupMin = 1e-6;

/// What a simulated engine can be told, by the same names wherever there is one: `stator sim`,
/// `serve`, `worker` and `sim-server`; `sim:` in YAML. The size of its KV cache and of its passes
/// are any engine's (`engine:`).
struct SimKnobs {
  std::string rules = "vllm";     ///< find_rules() reads it
  std::string timing = "linear";  ///< perf::make_timing() reads it, with `linear`
  perf::LinearCoefficients linear;
  double speedup = 1;  ///< of everything; 0 = no waiting at all
  double decode_speedup = 1;
  std::string draft_acceptance;  ///< read_acceptance() reads it
  SglangConfig sglang;
  double kv_bytes_per_token = 0;
  double host_gb_per_s = 64;

  perf::HostLink host_link() const {
    return {.bytes_per_token = kv_bytes_per_token, .bytes_per_second = host_gb_per_s * 1e9};
  }
};

/// Which flags: `--sim-timing`, or `--timing` as well, where all there is is a simulated engine.
enum class SimFlags : uint8_t { kPrefixed, kShortToo };

/// `knobs` outlive the schema; their values are the defaults.
void describe(ConfigSchema& schema, SimKnobs& knobs, SimFlags flags = SimFlags::kPrefixed);

}  // namespace stator::engine
