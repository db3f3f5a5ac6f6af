// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "stator/core/clock.h"
#include "stator/core/entropy.h"
#include "stator/core/random.h"

namespace stator {
namespace {

using namespace std::chrono_literals;

TEST(SimClock, MovesOnlyWhenAdvanced) {
  SimClock clock;
  const TimePoint start = clock.now();
  const WallTime wall = clock.wall_now();
  clock.advance(1500ms);
  EXPECT_EQ(clock.now() - start, 1500ms);
  EXPECT_EQ(clock.wall_now() - wall, 1500ms);
}

TEST(SystemClock, DoesNotGoBack) {
  const SystemClock clock;
  const TimePoint first = clock.now();
  EXPECT_LE(first, clock.now());
  EXPECT_GT(unix_seconds(clock.wall_now()), 1'600'000'000);
}

TEST(Random, TheSameSeedGivesTheSameNumbers) {
  Random a(7);
  Random b(7);
  Random c(8);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
}

TEST(Random, BelowIsUniform) {
  Random random(1);
  std::array<int, 7> counts{};
  constexpr int kDraws = 70'000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[random.below(7)];
  }
  double chi_square = 0;
  for (const int count : counts) {
    const double difference = count - kDraws / 7.0;
    chi_square += difference * difference / (kDraws / 7.0);
  }
  EXPECT_LT(chi_square, 22.46);  // 6 degrees of freedom, p = 0.001
}

TEST(Random, EntropyIsASequenceWhileItIsFixed) {
  const auto draw = [] {
    const FixedEntropy entropy(5);
    const uint64_t first = Random::from_entropy().seed();
    return std::pair(first, Random::from_entropy().seed());
  };
  EXPECT_EQ(draw(), draw());
  EXPECT_NE(draw().first, draw().second);
  EXPECT_NE(Random::from_entropy().seed(), Random::from_entropy().seed());
}

TEST(Random, UniformStaysInItsRange) {
  Random random(2);
  for (int i = 0; i < 1000; ++i) {
    const double value = random.uniform();
    EXPECT_GE(value, 0.0);
    EXPECT_LT(value, 1.0);
  }
}

}  // namespace
}  // namespace stator
