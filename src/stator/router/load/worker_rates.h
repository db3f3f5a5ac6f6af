// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/clock.h"
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
  double at(double x) const { return base_ + slope_ * x; }
  uint64_t observations() const { return observations_; }

 private:
  double base_;
  double slope_;
  double p00_ = kUnsure, p01_ = 0, p11_ = kUnsure;  // covariance of the estimate
  uint64_t observations_ = 0;
  static constexpr double kUnsure = 100;
};

/// How much longer one worker takes than others would for the same: the ratio of two sums that
/// forget. Two such ratios are kept, and a worker counts as different only as far as both say so:
///
///   habit    the last 200 observations or so, so that chance does not tell equal workers apart
///   recent   the last ten, which also fade with time: a half every 3 s
///
/// A worker that was slow for a while and then gets no work has no recent evidence left after some
/// seconds, counts as any other, gets requests again, and their times say what it is now. One that
/// is slow by nature gets a request every few seconds and is recognised by it. A pure value.
class Pace {
 public:
  void observe(double actual, double expected, TimePoint now);
  /// 1 unless it is clearly another: what equal workers happen to do must not tell them apart.
  double factor(TimePoint now) const;

 private:
  struct Sums {
    double actual = 0;
    double expected = 0;
    double observations = 0;  // those not forgotten
    void observe(double forgetting, double actual_now, double expected_now);
    double ratio() const;
  };
  double recent_left(TimePoint now) const;  // part of the recent evidence that has not faded

  Sums habit_;
  Sums recent_;
  TimePoint last_{};  // observation
};

/// How fast each worker is, as learned from what its requests saw: milliseconds to the first token
/// over prompt tokens to compute (its own and those ahead of it), and milliseconds between tokens
/// over requests running. The lines are those of the whole fleet, of which there is much to learn
/// from; each worker has its own factor where it is clearly slower or faster, as long as there is
/// recent evidence of it (see Pace).
/// Coefficients are kept non-negative. A pure core; dense by slot.
class WorkerRates {
 public:
  /// Small: a decision copies those of every worker.
  struct Rates {
    float ttft_base_ms = 5;
    float ttft_ms_per_token = 0.05F;
    float itl_base_ms = 10;
    float itl_ms_per_request = 0.2F;
    friend bool operator==(const Rates&, const Rates&) = default;
  };

  WorkerRates();
  void add_slot(LoadSlot slot);
  void first_token(LoadSlot slot, double prefill_tokens, double milliseconds, TimePoint now);
  void next_tokens(LoadSlot slot, double active_requests, double milliseconds_per_token,
                   TimePoint now);
  /// Factors of workers that were not heard of fade. Looks at all workers at most once in
  /// kAgingInterval; returns those whose factors changed, valid until the next call.
  std::span<const LoadSlot> age(TimePoint now);
  static constexpr Duration kAgingInterval = std::chrono::milliseconds(500);
  Rates of(LoadSlot slot) const;
  /// Those of `slots`, in that order.
  void read(std::span<const LoadSlot> slots, std::span<Rates> rates) const;

  /// How one worker's times differ from the fleet's.
  struct Factors {
    float ttft = 1;
    float itl = 1;
    friend bool operator==(const Factors&, const Factors&) = default;
  };
  const Factors& factors(LoadSlot slot) const { return factors_[slot]; }
  /// Rates of workers with these factors.
  void scale(std::span<const Factors> factors, std::span<Rates> rates) const;

 private:
  struct Paces {
    Pace ttft;
    Pace itl;
  };
  static void observe(LineFit& line, Pace& pace, double x, double y, TimePoint now);
  Factors factors_at(LoadSlot slot, TimePoint now) const;
  Rates fleet_rates() const;
  static Rates scaled(const Rates& fleet, const Factors& factors);

  LineFit ttft_;
  LineFit itl_;
  std::vector<Paces> paces_;
  std::vector<Factors> factors_;
  std::vector<LoadSlot> aged_;  // by the last call of age
  TimePoint next_aging_{};
};

}  // namespace stator::router
