// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/lease.h"

#include <gtest/gtest.h>

#include "stator/kube/work_queue.h"

namespace stator::kube {
namespace {

using namespace std::chrono_literals;

LeaseConfig config(std::string holder) {
  return {.name = {"ns", "l"}, .holder = std::move(holder)};
}

TEST(Lease, IsTakenOnlyWhenItsHolderIsSilentForItsDuration) {
  SimClock clock;
  LeaseView a(config("a"));
  LeaseView b(config("b"));
  json::Value lease = a.next({}, clock.now(), clock.wall_now());
  a.on_written(clock.now());
  EXPECT_TRUE(a.leads(clock.now()));
  EXPECT_TRUE(b.next(lease, clock.now(), clock.wall_now()).is_null());
  clock.advance(14s);
  EXPECT_FALSE(a.leads(clock.now()));
  EXPECT_TRUE(b.next(lease, clock.now(), clock.wall_now()).is_null());
  clock.advance(1s);
  const json::Value taken = b.next(lease, clock.now(), clock.wall_now());
  EXPECT_EQ(taken.text_at({"spec", "holderIdentity"}), "b");
  EXPECT_EQ(int_at(taken, {"spec", "leaseTransitions"}, 0), 1);
}

TEST(Lease, ReleasedOnesAreFreeAtOnce) {
  SimClock clock;
  LeaseView a(config("a"));
  const json::Value lease = a.released(a.next({}, clock.now(), clock.wall_now()));
  LeaseView b(config("b"));
  EXPECT_FALSE(b.next(lease, clock.now(), clock.wall_now()).is_null());
}

TEST(Lease, TimesAreWrittenAsTheApiReadsThem) {
  const WallTime time(std::chrono::seconds(1'700'000'000) + 12us);
  EXPECT_EQ(rfc3339_micro(time), "2023-11-14T22:13:20.000012Z");
  EXPECT_EQ(rfc3339(time), "2023-11-14T22:13:20Z");
}

TEST(WorkQueue, AKeyIsWorkedOnOnceAtATimeAndAgainIfAddedMeanwhile) {
  SystemClock clock;
  WorkQueue queue(clock);
  queue.add("a");
  queue.add("a");
  EXPECT_EQ(queue.take(), "a");
  queue.add("a");
  queue.add("b");
  EXPECT_EQ(queue.take(), "b");
  queue.done("a", true);
  EXPECT_EQ(queue.take(), "a");
  queue.done("a", true);
  queue.done("b", false);
  EXPECT_EQ(queue.take(), "b");  // after its pause of 5 ms
  queue.stop();
  EXPECT_EQ(queue.take(), std::nullopt);
}

}  // namespace
}  // namespace stator::kube
