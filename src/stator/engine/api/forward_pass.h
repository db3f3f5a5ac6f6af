// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::engine {

/// Population variance of what was added, by Welford's method: exact for equal values, however
/// large.
class Spread {
 public:
  void add(double value) {
    ++count_;
    const double delta = value - mean_;
    mean_ += delta / static_cast<double>(count_);
    squares_ += delta * (value - mean_);
  }
  double variance() const { return count_ == 0 ? 0 : squares_ / static_cast<double>(count_); }

 private:
  uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

/// What one forward pass computed. Tokens; a request is in one of the two halves.
struct PassWork {
  uint32_t prefill_requests = 0;   ///< begin or continue their prompt
  uint64_t prefill_tokens = 0;     ///< computed now: neither cached nor of earlier chunks
  double prefill_length_var = 0;   ///< of whole prompts
  uint64_t prefill_kv_tokens = 0;  ///< that those read: cached or computed by earlier chunks
  uint32_t decode_requests = 0;
  uint64_t decode_kv_tokens = 0;  ///< prompt and answer so far
  double decode_kv_var = 0;       ///< of that
  friend bool operator==(const PassWork&, const PassWork&) = default;
};

/// What waited for a later pass.
struct PassQueue {
  uint32_t prefill_requests = 0;  ///< that never ran
  uint64_t prefill_tokens = 0;    ///< of whole prompts, cached or not
  double prefill_length_var = 0;
  uint32_t decode_requests = 0;  ///< preempted
  uint64_t decode_kv_tokens = 0;
  double decode_kv_var = 0;
  friend bool operator==(const PassQueue&, const PassQueue&) = default;
};

/// One pass of one rank, as planners of fleets want to know it. The record of a rank that has
/// nothing left to do is all zero but for `dp_rank` and `counter`.
struct ForwardPass {
  uint32_t dp_rank = 0;
  uint64_t counter = 0;     ///< of the rank's records, from 1; a gap is what nobody took in time
  double wall_seconds = 0;  ///< from planning to the end of its output
  PassWork scheduled;
  PassQueue queued;
  friend bool operator==(const ForwardPass&, const ForwardPass&) = default;
};

}  // namespace stator::engine
