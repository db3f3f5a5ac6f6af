// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/handoff_desk.h"

#include <gtest/gtest.h>

#include "stator/core/clock.h"

namespace stator::fake_engine {
namespace {

using namespace std::chrono_literals;

TEST(HandoffDesk, AnOfferIsClaimedOnce) {
  SimClock clock;
  HandoffDesk desk(100, 30s, 10);
  EXPECT_EQ(desk.offer("a", 3, clock.now()).block_ids.size(), 3U);
  EXPECT_EQ(desk.pinned_blocks(), 3U);

  EXPECT_EQ(desk.claim("a", clock.now()), ClaimOutcome::kFresh);
  EXPECT_EQ(desk.claim("a", clock.now()), ClaimOutcome::kStale);
  EXPECT_EQ(desk.claim("never offered", clock.now()), ClaimOutcome::kStale);

  EXPECT_EQ(desk.pinned_blocks(), 0U);
  EXPECT_EQ(desk.late_claims(), 2U);
}

TEST(HandoffDesk, TheLeaseEnds) {
  SimClock clock;
  HandoffDesk desk(100, 30s, 10);
  desk.offer("a", 3, clock.now());
  clock.advance(29s);
  desk.offer("b", 2, clock.now());
  clock.advance(1s);

  EXPECT_EQ(desk.claim("a", clock.now()), ClaimOutcome::kStale);
  EXPECT_EQ(desk.claim("b", clock.now()), ClaimOutcome::kFresh);
  EXPECT_EQ(desk.expired(), 1U);
}

TEST(HandoffDesk, OpenOffersAreBounded) {
  SimClock clock;
  HandoffDesk desk(100, 30s, 2);
  for (const char* id : {"a", "b", "c"}) {
    desk.offer(id, 1, clock.now());
  }

  EXPECT_EQ(desk.open(), 2U);
  EXPECT_EQ(desk.pinned_blocks(), 2U);
  EXPECT_EQ(desk.claim("a", clock.now()), ClaimOutcome::kStale);
}

TEST(HandoffDesk, BlockIdsAreThoseOfThePool) {
  SimClock clock;
  HandoffDesk desk(4, 30s, 10);

  EXPECT_EQ(desk.offer("a", 5, clock.now()).block_ids, (std::vector<uint32_t>{1, 2, 3, 1, 2}));
}

}  // namespace
}  // namespace stator::fake_engine
