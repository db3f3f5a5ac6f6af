// SPDX-License-Identifier: Apache-2.0
// One client sends blocks whose 64-bit hashes are those of another client's prompt. What the other
// gets must be what it gets alone.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "stator/engine/core/test/scheduler_fixture.h"
#include "stator/kv/test/colliding_blocks.h"

namespace stator::engine {
namespace {

constexpr uint32_t kAnswer = 40;

/// `block`, then a little more.
inference::EngineRequest prompt_of(uint64_t id, std::vector<TokenId> block) {
  inference::EngineRequest out;
  out.key = key(id);
  out.tokens = std::move(block);
  out.tokens.insert(out.tokens.end(), {5, 6, 7});
  out.stop.max_tokens = kAnswer;
  return out;
}

/// Which pair; whether the attacker's block has gone to host memory before the victim comes.
class ForgedBlocks : public testing::TestWithParam<std::tuple<size_t, bool>> {
 protected:
  ForgedBlocks() : pair_(kv::colliding_blocks().at(std::get<0>(GetParam()))) {
    config_.block_size = static_cast<uint32_t>(pair_.victim.size());
    config_.total_blocks = kModelLength / config_.block_size;
    config_.host_blocks = evicts() ? 256 : 0;
  }
  static bool evicts() { return std::get<1>(GetParam()); }

  // The tokens are beyond the fixture's vocabulary, which the runner does not mind.
  Answer ask(Harness& harness, inference::EngineRequest request) {
    const inference::RequestKey name = request.key;
    EXPECT_TRUE(harness.scheduler.add(kSession, std::move(request), harness.now));
    harness.run_until_idle();
    if (evicts()) {
      EXPECT_TRUE(harness.add(stator::engine::request(++filler_, kModelLength - 2, 1, 1)));
      harness.run_until_idle();
    }
    return harness.answers[{kSession, name}];
  }

  kv::CollidingBlocks pair_;
  EngineConfig config_ = small_config();

 private:
  uint64_t filler_ = 1000;
};

TEST_P(ForgedBlocks, ChangeNobodysAnswer) {
  Harness alone(config_);
  const Answer clean = ask(alone, prompt_of(1, pair_.victim));
  Harness harness(config_);

  const Answer attack = ask(harness, prompt_of(1, pair_.forged));
  const Answer victim = ask(harness, prompt_of(2, pair_.victim));
  const Answer again = ask(harness, prompt_of(3, pair_.victim));
  const Answer attack_again = ask(harness, prompt_of(4, pair_.forged));

  EXPECT_EQ(victim.cached_tokens, 0U);
  EXPECT_EQ(victim.tokens, clean.tokens);
  EXPECT_EQ(again.cached_tokens, config_.block_size);
  EXPECT_EQ(again.tokens, clean.tokens);
  EXPECT_EQ(attack_again.cached_tokens, config_.block_size);
  EXPECT_EQ(attack_again.tokens, attack.tokens);
  EXPECT_NE(attack.tokens, clean.tokens);
  if (!evicts()) {
    EXPECT_EQ(harness.scheduler.pool().collisions_total(), 1U);
  } else {
    EXPECT_GT(harness.scheduler.host_tier().loaded_total(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(InEveryTier, ForgedBlocks,
                         testing::Combine(testing::Values(0, 1, 2), testing::Bool()));

TEST(CollidingBlocks, HaveOneHash) {
  const auto pairs = kv::colliding_blocks();
  ASSERT_EQ(pairs.size(), 3U);
  const uint64_t seed = blocks::hash_seed("", "");
  for (const kv::CollidingBlocks& pair : pairs) {
    EXPECT_NE(pair.victim, pair.forged);
    EXPECT_EQ(blocks::hash_block(pair.victim, seed), blocks::hash_block(pair.forged, seed));
  }
}

}  // namespace
}  // namespace stator::engine
