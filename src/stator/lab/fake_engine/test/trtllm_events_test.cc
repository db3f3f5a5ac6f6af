// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/trtllm_events.h"

#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

WireBatch stored(uint64_t hash, std::vector<TokenId> tokens) {
  const auto size = static_cast<uint32_t>(tokens.size());
  return {.unix_seconds = 0,
          .events = {WireStored{.hashes = {hash},
                                .parent = std::nullopt,
                                .tokens = std::move(tokens),
                                .block_size = size}},
          .dp_rank = 0};
}

// The example of the engine's documentation, with one token per block.
TEST(TrtllmEvents, AreWrittenAsDescribedAndDrained) {
  TrtllmEvents events(1, 101'230, 32'768, 10);
  events.on_events(stored(4'203'099'703'668'305'365, {1}));
  events.on_events({.unix_seconds = 0, .events = {WireRemoved{{42}}}, .dp_rank = 0});

  EXPECT_EQ(
      events.drain(),
      R"([{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[101230,0]},"window_size":32768},)"
      R"({"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block","block_hash":4203099703668305365,)"
      R"("tokens":[{"type":"unique_token","token_id":1,"token_extra_id":0}],"mm_keys":[],"cache_level":0,"priority":35}]},"window_size":32768},)"
      R"({"event_id":2,"data":{"type":"removed","block_hashes":[42]},"window_size":32768}])");
  EXPECT_EQ(events.drain(), "[]");
}

TEST(TrtllmEvents, AnUnreadBufferLosesItsOldest) {
  TrtllmEvents events(1, 10, 100, 2);
  for (uint64_t hash = 1; hash <= 5; ++hash) {
    events.on_events(stored(hash, {1}));
  }

  EXPECT_EQ(events.waiting(), 2U);
  EXPECT_TRUE(events.drain().starts_with(R"([{"event_id":4,)"));
}

TEST(TrtllmEvents, RanksCountOnTheirOwn) {
  TrtllmEvents events(2, 10, 100, 10);

  EXPECT_EQ(
      events.drain(),
      R"([{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[10,0]},"window_size":100,"attention_dp_rank":0},)"
      R"({"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[10,0]},"window_size":100,"attention_dp_rank":1}])");
}

}  // namespace
}  // namespace stator::fake_engine
