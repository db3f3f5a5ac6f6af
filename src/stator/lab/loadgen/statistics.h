// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/lab/loadgen/histogram.h"

namespace stator::loadgen {

/// The statistics every distribution is reported by, as AIPerf defines them: percentiles
/// interpolate linearly between neighbours, `std` is the population's.
struct Summary {
  uint64_t count = 0;
  double avg = 0;
  double min = 0;
  double max = 0;
  double p1 = 0;
  double p5 = 0;
  double p10 = 0;
  double p25 = 0;
  double p50 = 0;
  double p75 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double std = 0;
  double sum = 0;
};

/// Exact; sorts `values`. All zero when empty.
Summary summarize(std::vector<double>& values);
/// From counts, each value multiplied by `scale` (1e-6: nanoseconds to milliseconds).
Summary summarize(const Histogram& histogram, double scale);

/// Mean of repeated measurements and where the true one lies with 95 % confidence (Student's t).
struct Confidence {
  size_t runs = 0;
  double mean = 0;
  double std = 0;  ///< of the sample (n − 1)
  double low = 0;
  double high = 0;
};
/// With fewer than two values low and high are the mean itself.
Confidence confidence_95(std::span<const double> values);

/// t with P(|T| ≤ t) = `probability` for Student's distribution with `degrees` > 0 of freedom.
double student_t(double probability, double degrees);

/// How many values at the start of a series are not yet steady: the cut that makes the standard
/// error of the mean of the rest smallest (MSER, White 1997). Nothing when the best cut is not in
/// the first half: then the series never became steady. 0 for fewer than 10 values.
std::optional<size_t> find_warm_up(std::span<const double> series);

}  // namespace stator::loadgen
