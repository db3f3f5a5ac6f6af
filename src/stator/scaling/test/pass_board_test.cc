// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/pass_board.h"

#include <gtest/gtest.h>

#include "stator/perf/linear_timing.h"

namespace stator::scaling {
namespace {

engine::ForwardPass pass(uint32_t decodes, uint64_t kv, double seconds) {
  engine::ForwardPass out;
  out.wall_seconds = seconds;
  out.scheduled.decode_requests = decodes;
  out.scheduled.decode_kv_tokens = kv;
  return out;
}

TEST(PassBoard, KeepsTheLatestOfEachRankAndSumsTheWindow) {
  PassBoard board(nullptr);
  board.look(0);
  board.add(1, pass(4, 400, 0.01), 1);
  engine::ForwardPass prompts = pass(2, 200, 0.02);
  prompts.scheduled.prefill_requests = 3;
  prompts.scheduled.prefill_tokens = 300;
  prompts.scheduled.prefill_kv_tokens = 100;
  prompts.queued.prefill_tokens = 77;
  board.add(1, prompts, 2);
  board.add(2, pass(1, 50, 0.01), 2);

  const Observation seen = board.look(10);

  ASSERT_EQ(seen.loads.size(), 2U);
  EXPECT_EQ(seen.loads[0].running, 2);
  EXPECT_EQ(seen.loads[0].queued_prefill_tokens, 77);
  EXPECT_EQ(seen.loads[1].decode_kv_tokens, 50);
  ASSERT_TRUE(seen.window);
  EXPECT_EQ(seen.window_s, 10);
  EXPECT_EQ(seen.window->started, 3);
  EXPECT_EQ(seen.window->input_tokens, 400);
  EXPECT_EQ(seen.window->cached_tokens, 100);
  EXPECT_EQ(seen.window->output_tokens, 7);
}

TEST(PassBoard, ForgetsWorkersThatAreGoneOrSilent) {
  PassBoard board(nullptr);
  board.add(1, pass(1, 1, 0.01), 0);
  board.add(2, pass(1, 1, 0.01), 0);
  board.add(3, engine::ForwardPass(), 0);  // idle: silence is no wonder
  board.keep_only({1, 3});
  EXPECT_EQ(board.look(1).loads.size(), 2U);
  EXPECT_EQ(board.look(PassBoard::kSilent_s + 1).loads.size(), 1U);
}

TEST(PassBoard, RefusesMoreRanksThanItsBound) {
  PassBoard board(nullptr);
  for (size_t i = 0; i < PassBoard::kRanksMax + 5; ++i) {
    board.add(i, pass(1, 1, 0.01), 0);
  }
  EXPECT_EQ(board.refused(), 5U);
  EXPECT_EQ(board.look(1).loads.size(), PassBoard::kRanksMax);
}

TEST(PassBoard, TeachesTheStepModel) {
  const perf::LinearTiming assumed;
  perf::CalibratedTiming timing(assumed);
  PassBoard board(&timing);
  for (int i = 0; i < 50; ++i) {
    board.add(1, pass(8, 8000, 0.1), i);
  }
  perf::PassShape shape;
  shape.decode_requests = 8;
  shape.context_tokens = 8000;
  EXPECT_NEAR(timing.decode_ms(shape), 100, 2);
}

}  // namespace
}  // namespace stator::scaling
