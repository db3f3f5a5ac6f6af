// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/operator_timing.h"

#include <gtest/gtest.h>

#include <memory>

#include "stator/perf/roofline.h"

namespace stator::perf {
namespace {

// Llama-3.1-8B.
constexpr ModelShape kModel{.layers = 32,
                            .hidden = 4096,
                            .intermediate = 14'336,
                            .heads = 32,
                            .kv_heads = 8,
                            .head_dim = 128,
                            .vocabulary = 128'256};

std::unique_ptr<OperatorTiming> on_h100(uint32_t ranks = 1, const ModelShape& model = kModel) {
  const SpeedOfLight light(*find_accelerator("h100"), Precision::kBfloat16, Precision::kBfloat16);
  return *OperatorTiming::create(model, ranks,
                                 std::make_shared<RooflineCosts>(light, Utilisation{}));
}

PassShape decodes(uint32_t requests, uint64_t context) {
  return {.decode_requests = requests, .context_tokens = requests * context};
}

PassShape prompt(uint64_t before, uint64_t after) {
  PassShape shape;
  shape.add_prompt(before, after);
  return shape;
}

TEST(OperatorTiming, ADecodeReadsTheWeightsOnce) {
  // 16 GB at 3.35 TB/s are 4.8 ms; at 70 % of it, and with small kernels, 7.
  EXPECT_NEAR(on_h100()->decode_ms(decodes(1, 1000)), 7.2, 0.5);
  EXPECT_LT(on_h100()->decode_ms(decodes(32, 1000)), 9);
  EXPECT_GT(on_h100()->decode_ms(decodes(32, 30'000)), 2 * on_h100()->decode_ms(decodes(32, 1000)));
}

TEST(OperatorTiming, APromptTakesItsArithmetic) {
  // 2 · 7.0e9 · 8192 operations at 70 % of 989 TFLOPS: 165 ms; attention 33, small kernels 17.
  EXPECT_NEAR(on_h100()->prefill_ms(prompt(0, 8192)), 215, 5);
  EXPECT_LT(on_h100()->prefill_ms(prompt(7168, 8192)), on_h100()->prefill_ms(prompt(0, 8192)) / 6);
  EXPECT_EQ(on_h100()->prefill_ms(decodes(1, 1000)), 0);
}

TEST(OperatorTiming, APromptBesideDecodesSharesTheReadingOfWeights) {
  PassShape mixed = prompt(0, 64);
  mixed.decode_requests = 64;
  mixed.context_tokens = 64'000;
  EXPECT_LT(on_h100()->prefill_ms(mixed), on_h100()->prefill_ms(prompt(0, 64)) / 2);
}

TEST(OperatorTiming, RanksShareTheWork) {
  const double one = on_h100(1)->decode_ms(decodes(16, 1000));
  const double four = on_h100(4)->decode_ms(decodes(16, 1000));
  EXPECT_LT(four, one / 2);
  EXPECT_GT(four, one / 4);
  const auto odd = OperatorTiming::create(kModel, 3, nullptr);
  EXPECT_EQ(odd.error().code(), Code::kInvalidArgument);
}

TEST(OperatorTiming, AFewTokensReadTheirExpertsOnly) {
  ModelShape experts = kModel;
  experts.intermediate = 2048;
  experts.experts = 64;
  experts.experts_per_token = 4;
  const auto timing = on_h100(1, experts);
  const double few = timing->decode_ms(decodes(1, 100));
  EXPECT_GT(timing->decode_ms(decodes(16, 100)), 3 * few);
  EXPECT_LT(timing->decode_ms(decodes(64, 100)), 1.3 * timing->decode_ms(decodes(16, 100)));
}

}  // namespace
}  // namespace stator::perf
