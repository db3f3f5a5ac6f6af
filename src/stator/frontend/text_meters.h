// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"

namespace stator::frontend {

/// How long text takes to become tokens and tokens text (`<prefix>_tokenize_seconds`,
/// `_template_seconds`, `_tokenizer_latency_ms`, `_detokenize_total_us`,
/// `_detokenize_token_count`). Thread-safe; the clock outlives it.
class TextMeters {
 public:
  TextMeters(const Clock& clock, Metrics& metrics, const std::string& prefix);

  TimePoint now() const { return clock_.now(); }
  void rendered(TimePoint begin) const;
  void tokenized(TimePoint begin) const;
  /// Of deltas that are measured: one in kSampled, so that the clock costs next to nothing. Time
  /// and tokens are of those alone, so their ratio is right.
  void detokenized(TimePoint begin, uint64_t tokens) const;
  static constexpr uint32_t kSampled = 16;

 private:
  const Clock& clock_;
  Histogram tokenize_, template_, tokenize_ms_, detokenize_ms_;
  Counter detokenize_us_, detokenize_tokens_;
};

}  // namespace stator::frontend
