// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/arrivals.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace stator::loadgen {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Gaps {
  double mean_s = 0;
  double variation = 0;  // standard deviation over mean
};

Gaps measure_gaps(const ArrivalOptions& options, int count) {
  ArrivalSchedule schedule(options);
  double last = std::chrono::duration<double>(schedule.next()).count();
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    const double at = std::chrono::duration<double>(schedule.next()).count();
    EXPECT_GE(at, last);
    sum += at - last;
    squares += (at - last) * (at - last);
    last = at;
  }
  const double mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / mean};
}

TEST(Arrivals, ConstantOnesStartAtOnceAndKeepTheirDistance) {
  ArrivalSchedule schedule({.pattern = ArrivalPattern::kConstant, .rate_per_s = 4});

  EXPECT_EQ(schedule.next(), Duration{});
  EXPECT_EQ(schedule.next(), milliseconds(250));
  EXPECT_EQ(schedule.next(), milliseconds(500));
}

TEST(Arrivals, PoissonGapsVaryAsMuchAsTheirMean) {
  const Gaps gaps = measure_gaps({.pattern = ArrivalPattern::kPoisson, .rate_per_s = 50}, 40'000);

  EXPECT_NEAR(gaps.mean_s, 0.02, 0.0005);
  EXPECT_NEAR(gaps.variation, 1, 0.03);
}

TEST(Arrivals, GammaGapsVaryByTheRootOfTheirShape) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const Gaps gaps = measure_gaps(
        {.pattern = ArrivalPattern::kGamma, .rate_per_s = 10, .burstiness = burstiness}, 40'000);

    EXPECT_NEAR(gaps.mean_s, 0.1, 0.004) << burstiness;
    EXPECT_NEAR(gaps.variation * std::sqrt(burstiness), 1, 0.05) << burstiness;
  }
}

TEST(Arrivals, InARampHalfOfTheFullRateArrives) {
  ArrivalSchedule schedule(
      {.pattern = ArrivalPattern::kConstant, .rate_per_s = 100, .ramp = seconds(10)});
  int first_half = 0;
  int second_half = 0;
  int after = 0;
  for (Duration at = schedule.next(); at < seconds(12); at = schedule.next()) {
    (at < seconds(5) ? first_half : at < seconds(10) ? second_half : after) += 1;
  }

  EXPECT_NEAR(first_half, 125, 1);   // ∫ 10·t dt from 0 to 5
  EXPECT_NEAR(second_half, 375, 1);  // … from 5 to 10
  EXPECT_NEAR(after, 200, 1);
}

TEST(Arrivals, AreAFunctionOfTheSeed) {
  ArrivalSchedule one({.rate_per_s = 10, .seed = 3});
  ArrivalSchedule same({.rate_per_s = 10, .seed = 3});
  ArrivalSchedule other({.rate_per_s = 10, .seed = 4});

  const Duration first = one.next();

  EXPECT_EQ(first, same.next());
  EXPECT_NE(first, other.next());
}

}  // namespace
}  // namespace stator::loadgen
