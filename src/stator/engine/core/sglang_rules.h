// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/engine/core/scheduling_rules.h"

namespace stator::engine {

/// The share of their possible answers that SGLang keeps room for. It begins high, falls linearly
/// over 600 decode passes, and starts again when the guess was wrong. Plain arithmetic.
class NewTokenRatio {
 public:
  explicit NewTokenRatio(const SglangConfig& config);
  double value() const { return value_; }
  void on_decode();
  /// Somebody had to be retracted; `generated` and `allowed` tokens are those of who is left.
  void on_retraction(uint64_t generated, uint64_t allowed, uint32_t requests);
  void on_idle() { value_ = initial_; }

 private:
  double initial_;
  double minimum_;
  double decay_;
  double value_;
};

/// What one pass of prompts takes in (SGLang's PrefillAdder).
///
///   PrefillAdmission pass(config, limits);
///   if (chunked) tokens = pass.resume(left_of_its_prompt, left_of_its_answer);
///   for (request : waiting) if ((tokens = pass.offer(…)) == 0) break;
class PrefillAdmission {
 public:
  struct Limits {
    uint64_t room_tokens = 0;      ///< free, or cached and idle
    double promised_tokens = 0;    ///< of those, to running requests' answers
    uint32_t chunk_tokens = 8192;  ///< chunked_prefill_size, less what decodes take (mixed chunk)
    uint32_t page_tokens = 1;      ///< of a KV block
  };
  PrefillAdmission(const SglangConfig& config, const Limits& limits);

  /// The request whose prompt was begun: how many of its `prompt` tokens left are computed now.
  uint32_t resume(uint32_t prompt, uint32_t answer);
  /// The next one waiting, with `prompt` tokens that no cache has and `answer` tokens to come: how
  /// many are computed now. 0: none, and nobody after it is asked. Fewer than all: it is continued
  /// in the next pass.
  uint32_t offer(uint32_t prompt, uint32_t answer);
  /// Nobody else fits.
  bool closed() const;

 private:
  uint32_t clipped(uint32_t answer) const;
  void take(uint32_t prompt, uint32_t answer);

  const uint32_t clip_tokens_;
  const uint32_t page_tokens_;
  double room_;
  int64_t input_tokens_;
  int64_t chunk_tokens_;
  bool empty_ = true;
};

}  // namespace stator::engine
