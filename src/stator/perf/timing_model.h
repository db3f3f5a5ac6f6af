// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "stator/core/clock.h"

namespace stator::perf {

/// What one forward pass of one engine computes.
struct PassShape {
  uint32_t prefill_requests = 0;       ///< with prompt tokens in this pass
  uint64_t prefill_new_tokens = 0;     ///< prompt tokens computed in this pass
  uint64_t prefill_prefix_tokens = 0;  ///< of those requests: cached, or computed in earlier passes
  uint32_t decode_requests = 0;        ///< that get a token from this pass
  uint64_t context_tokens = 0;         ///< Σ length of those, prompt and answer so far
  uint64_t kv_tokens = 0;              ///< in KV blocks in use
  uint64_t kv_tokens_max = 1;          ///< in all KV blocks
  uint64_t prefill_pairs = 0;          ///< of a new prompt token and one it attends to
  uint64_t host_tokens = 0;            ///< whose KV comes from host memory for this pass

  /// Counts tokens [before, after) of one request's prompt.
  void add_prompt(uint64_t before, uint64_t after) {
    if (after > before) {
      const uint64_t tokens = after - before;
      ++prefill_requests;
      prefill_new_tokens += tokens;
      prefill_prefix_tokens += before;
      prefill_pairs += tokens * before + tokens * (tokens + 1) / 2;
    }
  }
};

/// How long the two parts of a pass take, in milliseconds; a pass takes their sum. Pure functions
/// of the shape, the same on every call; safe to share between threads.
class TimingModel {
 public:
  virtual ~TimingModel() = default;
  /// 0 when nothing is prefilled.
  virtual double prefill_ms(const PassShape& shape) const = 0;
  /// 0 when nobody decodes.
  virtual double decode_ms(const PassShape& shape) const = 0;
  /// Whether decode_ms reads context_tokens. If not, passes that differ in nothing else take
  /// equally long, and a simulation may do many at once.
  virtual bool reads_context() const = 0;
};

/// Between host memory and the device. What a pass needs from there is loaded layer by layer while
/// earlier layers compute, so the pass lasts as long as the longer of both; writing to host memory
/// goes on beside it and costs nothing.
struct HostLink {
  double bytes_per_token = 0;  ///< of KV; 0 = loading takes no time
  double bytes_per_second = 64e9;
  double load_ms(const PassShape& shape) const {
    return static_cast<double>(shape.host_tokens) * bytes_per_token / bytes_per_second * 1e3;
  }
};

/// Milliseconds of a model as the simulation counts time, `speedup` > 0 times faster.
inline Duration to_duration(double milliseconds, double speedup) {
  return Duration(std::llround(milliseconds * 1e6 / speedup));
}

}  // namespace stator::perf
