// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/linear_timing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stator::perf {
namespace {

TEST(LinearTiming, AddsUpItsParts) {
  const LinearTiming timing = *LinearTiming::create({.step_us = 100,
                                                     .prefill_token_us = 10,
                                                     .prefill_pair_us = 1,
                                                     .decode_sequence_us = 5,
                                                     .decode_context_token_us = 2});
  PassShape shape;
  shape.add_prompt(4, 8);  // four tokens attend to 5, 6, 7, 8
  EXPECT_DOUBLE_EQ(timing.prefill_ms(shape), 0.100 + 0.040 + 0.026);
  EXPECT_DOUBLE_EQ(timing.decode_ms(shape), 0);
  shape.decode_requests = 3;
  shape.context_tokens = 50;
  EXPECT_DOUBLE_EQ(timing.prefill_ms(shape), 0.040 + 0.026);
  EXPECT_DOUBLE_EQ(timing.decode_ms(shape), 0.100 + 0.015 + 0.100);
  EXPECT_TRUE(timing.reads_context());
}

TEST(LinearTiming, RefusesWhatIsNoTime) {
  EXPECT_EQ(LinearTiming::create({.step_us = -1}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(LinearTiming::create({.prefill_pair_us = std::nan("")}).error().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::perf
