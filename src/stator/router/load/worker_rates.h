// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/router/load/prompt_trie.h"

namespace stator::router {

/// y ≈ base + slope · x, learned online by recursive least squares with exponential forgetting
/// (Plackett 1950; Haykin, Adaptive Filter Theory, ch. 10). A pure value.
class LineFit {
 public:
  /// Starts at a guess that the first observations soon outweigh.
  LineFit(double base, double slope) : base_(base), slope_(slope) {}
  /// Values that are not finite, and negative ones, are ignored. Returns whether it was taken.
  bool observe(double x, double y);
  double base() const { return base_; }
  double slope() const { return slope_; }
  uint64_t observations() const { return observations_; }

 private:
  double base_;
  double slope_;
  double p00_ = kUnsure, p01_ = 0, p11_ = kUnsure;  // covariance of the estimate
  uint64_t observations_ = 0;
  static constexpr double kUnsure = 100;
};

/// How fast each worker is, as learned from what its requests saw: milliseconds to the first token
/// over prompt tokens to compute (its own and those ahead of it), and milliseconds between tokens
/// over requests running. A worker nobody has observed yet starts as the average of the others.
/// Coefficients are kept non-negative. A pure core; dense by slot.
class WorkerRates {
 public:
  struct Rates {
    double ttft_base_ms = 5;
    double ttft_ms_per_token = 0.05;
    double itl_base_ms = 10;
    double itl_ms_per_request = 0.2;
    friend bool operator==(const Rates&, const Rates&) = default;
  };

  void add_slot(LoadSlot slot);
  void first_token(LoadSlot slot, double prefill_tokens, double milliseconds);
  void next_tokens(LoadSlot slot, double active_requests, double milliseconds_per_token);
  const Rates& of(LoadSlot slot) const { return rates_[slot]; }

 private:
  struct Fits {
    LineFit ttft;
    LineFit itl;
  };
  static Fits fits_from(const Rates& rates);
  static Rates rates_from(const Fits& fits);

  Fits fleet_ = fits_from({});
  std::vector<Fits> fits_;
  std::vector<Rates> rates_;
};

}  // namespace stator::router
