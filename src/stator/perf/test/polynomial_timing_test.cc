// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/polynomial_timing.h"

#include <gtest/gtest.h>

#include <limits>

namespace stator::perf {
namespace {

TEST(PolynomialTiming, PrefillFollowsTheNewTokens) {
  const PolynomialTiming timing;

  EXPECT_NEAR(timing.prefill_ms({.prefill_requests = 2, .prefill_new_tokens = 1000}),
              16.50142 + 15.18344 + 0.4209989, 1e-9);
  EXPECT_EQ(timing.prefill_ms({.prefill_requests = 1, .prefill_new_tokens = 0}), 0);
  EXPECT_EQ(timing.prefill_ms({}), 0);
}

TEST(PolynomialTiming, DecodeFollowsTheBlocksInUse) {
  const PolynomialTiming timing;

  EXPECT_NEAR(timing.decode_ms({.decode_requests = 3, .kv_tokens = 50, .kv_tokens_max = 100}),
              5.74 + 27.005 - 6.435, 1e-9);
  EXPECT_EQ(timing.decode_ms({.decode_requests = 1, .kv_tokens = 200, .kv_tokens_max = 100}),
            timing.decode_ms({.decode_requests = 1, .kv_tokens = 100, .kv_tokens_max = 100}));
  EXPECT_EQ(timing.decode_ms({.kv_tokens = 50, .kv_tokens_max = 100}), 0);
}

TEST(PolynomialTiming, DecodeTakesAtLeastTheMinimum) {
  const auto timing = PolynomialTiming::create({.decode_ms = {0.25, 0, 0}, .decode_min_ms = 1});

  ASSERT_TRUE(timing.has_value());
  EXPECT_EQ(timing->decode_ms({.decode_requests = 1}), 1);
}

TEST(PolynomialTiming, NeitherPartGoesBackInTime) {
  const auto timing = PolynomialTiming::create(
      {.prefill_ms = {-9, 0, 0}, .decode_ms = {-5, 0, 0}, .decode_min_ms = -5});

  ASSERT_TRUE(timing.has_value());
  EXPECT_EQ(timing->prefill_ms({.prefill_requests = 1, .prefill_new_tokens = 1}), 0);
  EXPECT_EQ(timing->decode_ms({.decode_requests = 1}), 0);
}

TEST(PolynomialTiming, RefusesCoefficientsThatAreNoNumbers) {
  const auto timing =
      PolynomialTiming::create({.prefill_ms = {std::numeric_limits<double>::quiet_NaN(), 0, 0}});

  ASSERT_FALSE(timing.has_value());
  EXPECT_EQ(timing.error().code(), Code::kInvalidArgument);
}

TEST(PolynomialTiming, RefusesPassesThatWouldOverflowTheClock) {
  for (const PolynomialCoefficients& absurd : {PolynomialCoefficients{.prefill_ms = {1.1e6, 0, 0}},
                                               PolynomialCoefficients{.prefill_ms = {0, -1.1e3, 0}},
                                               PolynomialCoefficients{.prefill_ms = {0, 0, 1.1}},
                                               PolynomialCoefficients{.decode_ms = {0, 0, 1e300}},
                                               PolynomialCoefficients{.decode_min_ms = 1.1e6}}) {
    EXPECT_FALSE(PolynomialTiming::create(absurd).has_value());
  }
  EXPECT_TRUE(PolynomialTiming::create({.prefill_ms = {1e6, -1e3, 1}}).has_value());
}

TEST(ToDuration, RoundsToNanoseconds) {
  EXPECT_EQ(to_duration(1.0000006, 1), Duration(1'000'001));
  EXPECT_EQ(to_duration(10, 4), Duration(2'500'000));
}

}  // namespace
}  // namespace stator::perf
