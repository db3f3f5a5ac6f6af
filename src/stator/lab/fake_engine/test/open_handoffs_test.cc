// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/open_handoffs.h"

#include <gtest/gtest.h>

#include "stator/core/clock.h"

namespace stator::fake_engine {
namespace {

using namespace std::chrono_literals;

TEST(OpenHandoffs, AnOfferIsClaimedOnce) {
  SimClock clock;
  OpenHandoffs open_handoffs(100, 30s, 10);
  EXPECT_EQ(open_handoffs.offer("a", 3, clock.now()).block_ids.size(), 3U);
  EXPECT_EQ(open_handoffs.pinned_blocks(), 3U);

  EXPECT_EQ(open_handoffs.claim("a", clock.now()), ClaimOutcome::kFresh);
  EXPECT_EQ(open_handoffs.claim("a", clock.now()), ClaimOutcome::kStale);
  EXPECT_EQ(open_handoffs.claim("never offered", clock.now()), ClaimOutcome::kStale);

  EXPECT_EQ(open_handoffs.pinned_blocks(), 0U);
  EXPECT_EQ(open_handoffs.late_claims(), 2U);
}

TEST(OpenHandoffs, TheLeaseEnds) {
  SimClock clock;
  OpenHandoffs open_handoffs(100, 30s, 10);
  open_handoffs.offer("a", 3, clock.now());
  clock.advance(29s);
  open_handoffs.offer("b", 2, clock.now());
  clock.advance(1s);

  EXPECT_EQ(open_handoffs.claim("a", clock.now()), ClaimOutcome::kStale);
  EXPECT_EQ(open_handoffs.claim("b", clock.now()), ClaimOutcome::kFresh);
  EXPECT_EQ(open_handoffs.expired(), 1U);
}

TEST(OpenHandoffs, OpenOffersAreBounded) {
  SimClock clock;
  OpenHandoffs open_handoffs(100, 30s, 2);
  for (const char* id : {"a", "b", "c"}) {
    open_handoffs.offer(id, 1, clock.now());
  }

  EXPECT_EQ(open_handoffs.open(), 2U);
  EXPECT_EQ(open_handoffs.pinned_blocks(), 2U);
  EXPECT_EQ(open_handoffs.claim("a", clock.now()), ClaimOutcome::kStale);
}

TEST(OpenHandoffs, BlockIdsAreThoseOfThePool) {
  SimClock clock;
  OpenHandoffs open_handoffs(4, 30s, 10);

  EXPECT_EQ(open_handoffs.offer("a", 5, clock.now()).block_ids,
            (std::vector<uint32_t>{1, 2, 3, 1, 2}));
}

}  // namespace
}  // namespace stator::fake_engine
