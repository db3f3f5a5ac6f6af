// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/calibrated_timing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stator/core/random.h"
#include "stator/perf/linear_timing.h"

namespace stator::perf {
namespace {

LinearTiming linear(double step_us, double token_us, double sequence_us, double context_us) {
  return *LinearTiming::create({.step_us = step_us,
                                .prefill_token_us = token_us,
                                .decode_sequence_us = sequence_us,
                                .decode_context_token_us = context_us});
}

PassShape draw(Random& random) {
  PassShape shape;
  if (random.below(3) == 0) {
    shape.add_prompt(0, 50 + random.below(4000));
  }
  shape.decode_requests = static_cast<uint32_t>(random.below(64));
  shape.context_tokens = shape.decode_requests * (500 + random.below(3000));
  return shape;
}

TEST(CalibratedTiming, FindsTheMachineBehindAWrongModel) {
  const LinearTiming assumed = linear(5000, 50, 20, 0), real = linear(9000, 120, 35, 0.02);
  CalibratedTiming timing(assumed);
  Random random(7);

  for (int i = 0; i < 400; ++i) {
    const PassShape shape = draw(random);
    timing.learn(shape, step_ms(real, shape) * (0.97 + 0.06 * random.uniform()));
  }

  for (int i = 0; i < 100; ++i) {
    const PassShape shape = draw(random);
    const double expected = step_ms(real, shape);
    EXPECT_NEAR(step_ms(timing, shape), expected, 0.05 * expected + 0.2);
  }
  const CalibrationError error = timing.error();
  EXPECT_GT(error.base_percent, 30);
  EXPECT_LT(error.calibrated_percent, 4);
}

TEST(CalibratedTiming, AnswersAsGivenUntilThereIsEnoughToLearnFrom) {
  const LinearTiming assumed = linear(5000, 50, 20, 0);
  CalibratedTiming timing(assumed);
  PassShape shape;
  shape.decode_requests = 4;
  for (uint64_t i = 0; i + 1 < CalibratedTiming::kPassesMin; ++i) {
    timing.learn(shape, 100);
  }

  EXPECT_DOUBLE_EQ(step_ms(timing, shape), step_ms(assumed, shape));
}

TEST(CalibratedTiming, IgnoresWhatIsNoTimeAndWhatCannotBeAPass) {
  const LinearTiming assumed = linear(5000, 50, 20, 0);
  CalibratedTiming timing(assumed);
  PassShape shape;
  shape.decode_requests = 4;
  timing.learn(shape, std::nan(""));
  timing.learn(shape, -1);
  timing.learn(shape, std::numeric_limits<double>::infinity());
  timing.learn({}, 5);
  EXPECT_EQ(timing.error().passes, 0U);
  for (int i = 0; i < 50; ++i) {
    timing.learn(shape, step_ms(assumed, shape));
  }

  timing.learn(shape, 60'000);  // the machine slept

  EXPECT_NEAR(step_ms(timing, shape), step_ms(assumed, shape), 0.01);
}

TEST(CalibratedTiming, StaysFiniteAndPositiveWhenAllPassesAreAlike) {
  const LinearTiming assumed = linear(5000, 50, 20, 0);
  CalibratedTiming timing(assumed);
  PassShape shape;
  shape.decode_requests = 8;
  shape.context_tokens = 8000;
  for (int i = 0; i < 100'000; ++i) {
    timing.learn(shape, 3);
  }

  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const double ms = step_ms(timing, draw(random));
    EXPECT_TRUE(std::isfinite(ms) && ms >= 0) << ms;
  }
  EXPECT_NEAR(step_ms(timing, shape), 3, 0.05);
}

}  // namespace
}  // namespace stator::perf
