// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/kept_prefixes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "stator/engine/core/test/scheduler_fixture.h"

namespace stator::engine {
namespace {

using std::chrono::seconds;

/// A request whose client wants its prompt again.
inference::EngineRequest wanted_again(inference::EngineRequest request, uint32_t keep_s,
                                      std::string session = {}, bool is_final = false) {
  request.context = std::make_shared<const inference::RequestContext>(inference::RequestContext{
      .metadata = {{"cache-control", "max-age=" + std::to_string(keep_s)}},
      .session = std::move(session),
      .session_final = is_final});
  return request;
}

/// 16 blocks of 4 tokens; whoever asks for 12 of them throws out what is cached.
EngineConfig tiny_config() {
  EngineConfig config = small_config();
  config.total_blocks = 16;
  config.max_model_len = 64;
  return config;
}

class Kept : public testing::Test {
 protected:
  uint32_t cached_of(uint64_t id, inference::EngineRequest request) {
    EXPECT_TRUE(harness_.add(std::move(request)));
    harness_.run_until_idle();
    return harness_.answer(id).cached_tokens;
  }
  /// Two prompts, neither of which leaves room for what else was cached before both.
  void flood(uint64_t id) {
    for (const uint64_t other : {id + 100, id + 200}) {
      cached_of(other, request(other, 46, 1, static_cast<TokenId>(other)));
    }
  }

  Harness harness_{tiny_config()};
};

TEST_F(Kept, WhatIsWantedAgainOutlivesOthersPrompts) {
  cached_of(1, request(1, 13, 1));
  flood(2);
  EXPECT_EQ(cached_of(3, request(3, 13, 1)), 0U) << "evicted, as nobody asked for it";
  cached_of(4, wanted_again(request(4, 13, 1, 900), 300));
  EXPECT_EQ(harness_.scheduler.load().kv_used_blocks, 0U) << "held for nobody who runs";
  flood(5);
  EXPECT_EQ(cached_of(6, request(6, 13, 1, 900)), 12U);
}

TEST_F(Kept, ItsTimeEnds) {
  cached_of(1, wanted_again(request(1, 13, 1, 900), 300));
  harness_.now += seconds(301);
  flood(2);
  EXPECT_EQ(cached_of(3, request(3, 13, 1, 900)), 0U);
}

TEST_F(Kept, AConversationsLastRequestLetsItGo) {
  cached_of(1, wanted_again(request(1, 13, 1, 900), 300, "talk"));
  cached_of(2, wanted_again(request(2, 4, 1, 800), 0, "talk", true));
  EXPECT_EQ(harness_.scheduler.kept_prefixes().size(), 0U);
}

TEST_F(Kept, WhoRunsGetsTheRoom) {
  cached_of(1, wanted_again(request(1, 16, 1, 900), 300));
  EXPECT_EQ(harness_.scheduler.kept_prefixes().size(), 1U);
  ASSERT_TRUE(harness_.add(request(2, 60, 4)));
  harness_.run_until_idle();
  EXPECT_EQ(harness_.answer(2).tokens.size(), 4U);
  EXPECT_EQ(harness_.scheduler.totals().preemptions, 0U);
  EXPECT_TRUE(harness_.scheduler.kept_prefixes().empty());
}

TEST_F(Kept, AtMostAQuarterOfThePoolIsHeld) {
  cached_of(1, wanted_again(request(1, 13, 1, 900), 300));
  cached_of(2, wanted_again(request(2, 13, 1, 800), 600));
  EXPECT_EQ(harness_.scheduler.kept_prefixes().size(), 1U) << "3 blocks each, 4 may be held";
  cached_of(3, wanted_again(request(3, 30, 1, 700), 600));
  EXPECT_EQ(harness_.scheduler.kept_prefixes().size(), 1U) << "too long to be held";
}

TEST_F(Kept, ALaterTurnTakesTheEarlierOnesPlace) {
  cached_of(1, wanted_again(request(1, 9, 1, 900), 300));
  cached_of(2, wanted_again(request(2, 14, 1, 900), 300));
  EXPECT_EQ(harness_.scheduler.kept_prefixes().size(), 1U);
  cached_of(3, wanted_again(request(3, 9, 1, 900), 300));
  EXPECT_EQ(harness_.scheduler.kept_prefixes().size(), 1U) << "the longer one has it";
  harness_.scheduler.reset_prefix_cache();
  EXPECT_TRUE(harness_.scheduler.kept_prefixes().empty());
}

}  // namespace
}  // namespace stator::engine
