// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/wake_queue.h"

#include <gtest/gtest.h>

#include <map>

#include "stator/core/random.h"

namespace stator::simulator {
namespace {

TimePoint at(int64_t ns) {
  return TimePoint(Duration(ns));
}

TEST(WakeQueue, ServesTheLowestWorkerOfAnInstantFirst) {
  WakeQueue queue;
  queue.set(3, at(5));
  queue.set(1, at(5));
  queue.set(2, at(4));

  EXPECT_EQ(queue.pop().worker, 2);
  EXPECT_EQ(queue.pop().worker, 1);
  EXPECT_EQ(queue.pop().worker, 3);
  EXPECT_TRUE(queue.empty());
}

TEST(WakeQueue, AgreesWithAnOrderedMapOnRandomMoves) {
  Random random(7);
  WakeQueue queue;
  std::map<uint32_t, TimePoint> model;
  for (int step = 0; step < 20'000; ++step) {
    const auto worker = static_cast<uint32_t>(random.below(50));
    if (random.below(4) == 0) {
      queue.erase(worker);
      model.erase(worker);
    } else if (random.below(4) == 0 && !model.empty()) {
      const WakeQueue::Wake wake = queue.pop();
      for (const auto& [other, time] : model) {
        ASSERT_LE(wake, (WakeQueue::Wake{time, other}));
      }
      model.erase(wake.worker);
    } else {
      const TimePoint time = at(static_cast<int64_t>(random.below(100)));
      queue.set(worker, time);
      model[worker] = time;
    }
    ASSERT_EQ(queue.empty(), model.empty());
    if (!model.empty()) {
      ASSERT_EQ(queue.top().time, model.at(queue.top().worker));
    }
  }
}

}  // namespace
}  // namespace stator::simulator
