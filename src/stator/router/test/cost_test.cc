// SPDX-License-Identifier: Apache-2.0
#include "stator/router/cost.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace stator::router {
namespace {

constexpr double kExact = 1e-9;
constexpr CostRequest kTenBlocks{.prompt_tokens = 160, .block_size = 16};

double compute_cost(const CostConfig& config, const CostInputs& worker, const CostRequest& request,
                    double min_active_prefill_tokens) {
  return CostTerms(config, request, min_active_prefill_tokens).cost(worker);
}

// The worked examples of the reference router's documentation.

TEST(Cost, PlainOverlapAgainstDecodeLoad) {
  const CostConfig config;
  EXPECT_NEAR(compute_cost(config, {.device_overlap = 2, .decode_blocks = 10}, kTenBlocks, 0), 18,
              kExact);
  EXPECT_NEAR(compute_cost(config, {.device_overlap = 5, .decode_blocks = 5}, kTenBlocks, 0), 10,
              kExact);
  EXPECT_NEAR(compute_cost(config, {.device_overlap = 8, .decode_blocks = 9}, kTenBlocks, 0), 11,
              kExact);
}

TEST(Cost, QueuedPrefillCountsAndDecaysTheCredit) {
  const CostInputs busy{.device_overlap = 8, .active_prefill_tokens = 320, .decode_blocks = 40};
  const CostInputs idle{.decode_blocks = 12};
  CostConfig config;
  EXPECT_NEAR(compute_cost(config, busy, kTenBlocks, 0), 62, kExact);
  EXPECT_NEAR(compute_cost(config, idle, kTenBlocks, 0), 22, kExact);
  config.overlap_credit_decay = 1;
  EXPECT_NEAR(compute_cost(config, busy, kTenBlocks, 0), 40 + 30 - 8.0 / 3, kExact);
}

TEST(Cost, AnExcessOfOneRequestHalvesTheCredit) {
  CostConfig config;
  config.overlap_credit_decay = 1;
  const CostInputs worker{.device_overlap = 8, .active_prefill_tokens = 160};
  EXPECT_NEAR(compute_cost(config, worker, kTenBlocks, 0), 20 - 4, kExact);
}

TEST(Cost, LowerTiersCountByTheirWeights) {
  CostConfig config;
  config.host_weight = 0.5;
  config.disk_weight = 0.25;
  const CostInputs worker{.device_overlap = 2, .host_extension = 3, .disk_extension = 9};
  EXPECT_NEAR(cached_tokens(config, worker, kTenBlocks), 92, kExact);
}

TEST(Cost, CreditMixesAllSources) {
  CostConfig config;
  config.overlap_credit = 0.5;
  config.host_weight = 0.25;
  config.disk_weight = 0.1;
  config.shared_multiplier = 0.5;
  const CostInputs worker{
      .device_overlap = 2, .host_extension = 1, .disk_extension = 2, .shared_beyond = 2};
  EXPECT_NEAR(compute_cost(config, worker, kTenBlocks, 0), 10 - 2.45, kExact);
}

TEST(Cost, ADecodeWorkerPaysForBlocksNotForThePrompt) {
  const CostInputs worker{.device_overlap = 6, .decode_blocks = 20};
  EXPECT_NEAR(compute_decode_cost({}, worker), 14, kExact);
}

TEST(Cost, AnUntrackedPromptCostsNothing) {
  CostRequest elsewhere = kTenBlocks;
  elsewhere.track_prefill = false;
  const CostInputs worker{.active_prefill_tokens = 320, .decode_blocks = 40};
  EXPECT_NEAR(compute_cost({}, worker, elsewhere, 0), 40, kExact);
}

TEST(Cost, OverridesReplaceOnlyWhatTheySet) {
  CostConfig config;
  config.temperature = 0.3;
  const CostConfig result = apply(config, {.overlap_credit = 0.0, .prefill_load_scale = 2.0});
  EXPECT_EQ(result.overlap_credit, 0);
  EXPECT_EQ(result.prefill_load_scale, 2);
  EXPECT_EQ(result.temperature, 0.3);
}

TEST(Cost, SoftmaxGivesTheDocumentedProbabilities) {
  constexpr std::array kCosts = {18.0, 10.0, 11.0};
  const auto probabilities = softmax_of_costs(kCosts, 0.5);
  EXPECT_NEAR(probabilities[0], 0.0707, 1e-4);
  EXPECT_NEAR(probabilities[1], 0.5225, 1e-4);
  EXPECT_NEAR(probabilities[2], 0.4069, 1e-4);
}

TEST(Cost, SoftmaxDrawsFollowTheProbabilities) {
  constexpr std::array kCosts = {18.0, 10.0, 11.0};
  std::array<int, 3> counts{};
  Random random(3);
  for (int i = 0; i < 30'000; ++i) {
    ++counts[pick_by_cost(kCosts, 0.5, random).row];
  }
  EXPECT_NEAR(counts[0] / 30'000.0, 0.0707, 0.01);
  EXPECT_NEAR(counts[1] / 30'000.0, 0.5225, 0.01);
}

TEST(Cost, TiesAreBrokenUniformly) {
  constexpr std::array kCosts = {1.0, 2.0, 1.0, 1.0};
  std::array<int, 4> counts{};
  Random random(4);
  constexpr int kDraws = 30'000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[pick_by_cost(kCosts, 0, random).row];
  }
  EXPECT_EQ(counts[1], 0);
  double chi_square = 0;
  for (const size_t i : {0U, 2U, 3U}) {
    chi_square += std::pow(counts[i] - kDraws / 3.0, 2) / (kDraws / 3.0);
  }
  EXPECT_LT(chi_square, 13.82);  // 2 degrees of freedom, p = 0.001
}

TEST(Cost, NotANumberNeverWins) {
  const std::array costs = {std::nan(""), 5.0, std::nan("")};
  Random random(5);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pick_by_cost(costs, 0, random).row, 1U);
  }
}

}  // namespace
}  // namespace stator::router
