// SPDX-License-Identifier: Apache-2.0
#include "stator/router/route_replay.h"

#include <gtest/gtest.h>

namespace stator::router {
namespace {

/// Conversations of ten turns: each turn's prompt is the last one and a block more.
std::vector<ReplayRequest> conversations(uint32_t count) {
  std::vector<ReplayRequest> requests;
  for (uint32_t turn = 0; turn < 10; ++turn) {
    for (uint32_t i = 0; i < count; ++i) {
      ReplayRequest request{.arrival_ms = turn * 60'000.0 + i * 20.0,
                            .prompt_tokens = (turn + 1) * 512 + 100,
                            .output_tokens = 50};
      for (uint32_t block = 0; block <= turn; ++block) {
        request.blocks.push_back(i * 100 + block + 1);
      }
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

RouterConfig mode(std::string name) {
  RouterConfig config;
  config.mode = std::move(name);
  return config;
}

TEST(RouteReplay, KvFindsWhatRoundRobinMisses) {
  const auto trace = conversations(31);
  const auto kv = replay_trace(trace, mode("kv"), {.workers = 4});
  const auto turns = replay_trace(trace, mode("round_robin"), {.workers = 4});
  ASSERT_TRUE(kv && turns);
  EXPECT_EQ(kv->requests, 310U);
  EXPECT_EQ(kv->prompt_tokens, turns->prompt_tokens);
  EXPECT_GT(kv->hit_rate(), 0.75) << "0.79 is all there is";
  EXPECT_LT(turns->hit_rate(), kv->hit_rate());
  EXPECT_LT(kv->ttft_mean_ms, turns->ttft_mean_ms);
}

TEST(RouteReplay, TheSameInputGivesTheSameFigures) {
  const auto trace = conversations(20);
  const auto first = replay_trace(trace, mode("power_of_two"), {.workers = 4});
  const auto second = replay_trace(trace, mode("power_of_two"), {.workers = 4});
  EXPECT_EQ(first->choices, second->choices);
  EXPECT_EQ(first->ttft_mean_ms, second->ttft_mean_ms);
}

TEST(RouteReplay, OneWorkerComputesOneByOne) {
  const std::vector<ReplayRequest> trace = {
      {.arrival_ms = 0, .prompt_tokens = 1000, .output_tokens = 1},
      {.arrival_ms = 50, .prompt_tokens = 1000, .output_tokens = 1}};
  const auto figures = replay_trace(trace, mode("kv"), {.workers = 1, .prefill_ms_per_token = 0.1});
  EXPECT_DOUBLE_EQ(figures->ttft_mean_ms, (100 + 150) / 2.0);
  EXPECT_EQ(figures->computed_tokens, 2000U);
}

TEST(RouteReplay, ASmallCacheForgetsAndTheIndexKnows) {
  std::vector<ReplayRequest> trace;
  for (uint32_t i = 0; i < 30; ++i) {  // three prompts in turn, room for two
    trace.push_back({.arrival_ms = i * 10'000.0,
                     .prompt_tokens = 1024,
                     .output_tokens = 1,
                     .blocks = {i % 3 * 10 + 1, i % 3 * 10 + 2}});
  }
  const auto small = replay_trace(trace, mode("kv"), {.workers = 1, .kv_blocks = 4});
  EXPECT_EQ(small->hit_rate(), 0);
  EXPECT_EQ(small->evicted_blocks, 56U);
  EXPECT_GT(replay_trace(trace, mode("kv"), {.workers = 1, .kv_blocks = 6})->hit_rate(), 0.85);
}

TEST(RouteReplay, AFleetOfNothingIsRefused) {
  EXPECT_FALSE(replay_trace({}, mode("kv"), {.workers = 0}).has_value());
  EXPECT_FALSE(replay_trace({}, mode("best"), {}).has_value());
  EXPECT_EQ(replay_trace({}, mode("kv"), {})->requests, 0U);
}

TEST(ReplayReceipt, DecidesOnWhatTheReceiptSaw) {
  Receipt receipt;
  receipt.prompt_tokens = 160;
  receipt.block_size = 16;
  receipt.candidates = {
      {.worker = {WorkerId(1), 0}, .overlap_blocks = 2, .active_blocks = 0},
      {.worker = {WorkerId(2), 0}, .overlap_blocks = 8, .active_blocks = 3, .active_requests = 1},
      {.worker = {WorkerId(3), 0}, .overlap_blocks = 10, .excluded = Exclusion::kDraining}};
  Random random(1);
  EXPECT_EQ(replay_receipt(receipt, "kv", random)->worker, WorkerId(2));
  EXPECT_EQ(replay_receipt(receipt, "least_loaded", random)->worker, WorkerId(1));
  EXPECT_FALSE(replay_receipt(receipt, "best", random).has_value());
  receipt.candidates.resize(0);
  EXPECT_FALSE(replay_receipt(receipt, "kv", random).has_value());
}

}  // namespace
}  // namespace stator::router
