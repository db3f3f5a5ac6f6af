// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace stator::engine::cpu {
namespace {

TEST(RopeFrequencies, FollowTheirDefinition) {
  const auto plain = rope_frequencies({.theta = 100.0}, 4);
  ASSERT_EQ(plain.size(), 2U);
  EXPECT_FLOAT_EQ(plain[0], 1.0F);
  EXPECT_FLOAT_EQ(plain[1], 0.1F);

  const auto linear =
      rope_frequencies({.scaling = RopeScaling::kLinear, .theta = 100.0, .factor = 4.0}, 4);
  EXPECT_FLOAT_EQ(linear[0], 0.25F);
  EXPECT_FLOAT_EQ(linear[1], 0.025F);
}

TEST(RopeFrequencies, Llama3KeepsShortWavesAndStretchesLongOnes) {
  const RopeConfig rope{.scaling = RopeScaling::kLlama3,
                        .theta = 10000.0,
                        .factor = 8.0,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0,
                        .original_positions = 128};
  const auto stretched = rope_frequencies(rope, 8);
  const auto plain = rope_frequencies({.theta = 10000.0}, 8);

  // Wavelengths 6.3, 63, 628 and 6283 against the bounds 32 and 128.
  EXPECT_FLOAT_EQ(stretched[0], plain[0]);
  const double smooth = (128 * 0.1 / (2 * std::numbers::pi) - 1.0) / 3.0;
  EXPECT_FLOAT_EQ(stretched[1], static_cast<float>((1 - smooth) * 0.1 / 8 + smooth * 0.1));
  EXPECT_FLOAT_EQ(stretched[2], plain[2] / 8);
  EXPECT_FLOAT_EQ(stretched[3], plain[3] / 8);
}

TEST(RopeTable, TurnsLongTextsOtherwiseFromTheirLengthOn) {
  const RopeConfig dynamic{
      .scaling = RopeScaling::kDynamic, .theta = 10000.0, .factor = 2.0, .original_positions = 64};
  const double theta = 10000.0 * std::pow(2.0 * 100 / 64 - 1, 8.0 / 6);
  EXPECT_FLOAT_EQ(rope_frequencies(dynamic, 8, 64)[1], rope_frequencies(dynamic, 8)[1]);
  EXPECT_FLOAT_EQ(rope_frequencies(dynamic, 8, 100)[1],
                  static_cast<float>(std::pow(theta, -2.0 / 8)));
  const RopeConfig longrope{.scaling = RopeScaling::kLongRope,
                            .theta = 100.0,
                            .original_positions = 16,
                            .near_factors = {1.0F, 2.0F},
                            .far_factors = {4.0F, 8.0F}};
  const RopeTable table(longrope, 4);
  std::vector<float> cosines(2);
  std::vector<float> sines(2);

  table.angles(3, 16, cosines, sines);
  EXPECT_NEAR(sines[0], std::sin(3.0), 1e-6);
  table.angles(3, 17, cosines, sines);
  EXPECT_NEAR(sines[0], std::sin(3.0 / 4), 1e-6) << "of a text of 17 the first tokens, too";
}

TEST(RopeRotate, TurnsHalfSplitPairs) {
  const std::vector<float> frequencies = {1.0F, 0.5F};
  std::vector<float> cosines(2);
  std::vector<float> sines(2);
  rope_angles(frequencies, 3, cosines, sines);
  std::vector<float> head = {1.0F, 0.0F, 0.0F, 2.0F};

  rope_rotate(cosines, sines, head.data());

  EXPECT_NEAR(head[0], std::cos(3.0), 1e-6);
  EXPECT_NEAR(head[2], std::sin(3.0), 1e-6);
  EXPECT_NEAR(head[1], -2 * std::sin(1.5), 1e-6);
  EXPECT_NEAR(head[3], 2 * std::cos(1.5), 1e-6);
}

}  // namespace
}  // namespace stator::engine::cpu
