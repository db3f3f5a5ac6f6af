// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/observation.h"

#include <gtest/gtest.h>

namespace stator::scaling {
namespace {

Observation busy() {
  Observation seen{.window_s = 10};
  seen.window = WindowSums{.started = 20,
                           .completed = 18,
                           .input_tokens = 1800,
                           .input_count = 18,
                           .output_tokens = 180,
                           .output_count = 18,
                           .cached_tokens = 900,
                           .ttft_s = 3.6,
                           .ttft_count = 18,
                           .ttft_late = 9};
  seen.loads = {{.worker = 1, .running = 2, .decode_kv_tokens = 64}, {.worker = 2}};
  seen.decode_ready = 2;
  return seen;
}

TEST(InputBuilder, MeansAndLoadsBecomeInputs) {
  InputBuilder builder(0);
  const planner::Inputs inputs = builder.build(5, busy(), std::nullopt, 2);

  ASSERT_TRUE(inputs.traffic);
  EXPECT_EQ(inputs.traffic->requests, 20);
  EXPECT_EQ(inputs.traffic->input_tokens, 100);
  EXPECT_EQ(inputs.traffic->kv_hit_rate, 0.5);
  EXPECT_EQ(inputs.traffic->missed, 9);
  EXPECT_EQ(inputs.decode.ready, 2U);
  EXPECT_EQ(inputs.decode.engines.size(), 2U);
  EXPECT_NEAR(builder.observed().ttft_ms, 200, 1e-9);
}

TEST(InputBuilder, AnIdleWindowKeepsTheLengthsOfBefore) {
  InputBuilder builder(0);
  builder.build(5, busy(), std::nullopt, 2);
  Observation idle{.window_s = 10};
  idle.window = WindowSums{};
  const planner::Inputs inputs = builder.build(15, idle, std::nullopt, 2);

  EXPECT_EQ(inputs.traffic->requests, 0);
  EXPECT_EQ(inputs.traffic->input_tokens, 100);
  EXPECT_EQ(inputs.traffic->output_tokens, 10);
}

TEST(InputBuilder, WorkersAboveTheWantedSizeDrain) {
  InputBuilder builder(0);
  Observation seen = busy();
  const planner::Inputs inputs = builder.build(5, seen, std::nullopt, 1);

  EXPECT_EQ(inputs.decode.expected, 1U);
  EXPECT_EQ(inputs.decode.ready, 1U);
  EXPECT_EQ(inputs.decode.draining, 1U);
  EXPECT_EQ(inputs.decode.engines.size(), 1U);
}

TEST(InputBuilder, AcceptLengthStaysWithinWhatDraftsAllow) {
  InputBuilder builder(2);
  Observation seen = busy();
  seen.window->drafts = 10;
  seen.window->accepted_drafts = 50;
  EXPECT_EQ(builder.build(5, seen, std::nullopt, 2).traffic->accept_length, 3);
  InputBuilder without(0);
  EXPECT_EQ(without.build(5, seen, std::nullopt, 2).traffic->accept_length, 1);
}

TEST(InputBuilder, WhatIsNotTrustedBecomesNoTraffic) {
  InputBuilder builder(0);
  Observation seen = busy();
  seen.broken = "lost";
  const planner::Inputs inputs = builder.build(5, seen, std::nullopt, 2);
  EXPECT_FALSE(inputs.traffic);
  EXPECT_EQ(inputs.broken, "lost");
}

}  // namespace
}  // namespace stator::scaling
