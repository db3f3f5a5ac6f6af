// SPDX-License-Identifier: Apache-2.0
#include "stator/net/work_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stator::net {
namespace {

using Room = WorkQueue::Room;
using Which = WorkQueue::Which;

constexpr size_t kMiB = size_t{1} << 20;

class WorkQueueTest : public ::testing::Test {
 protected:
  Room push(WorkClient client, const std::string& name, size_t bytes,
            WorkPriority priority = WorkPriority::kRequest) {
    Work work{.priority = priority, .bytes = bytes, .client = client, .run = [this, name] {
                taken_.push_back(name);
              }};
    const Room room = queue_.room_for(work);
    if (room == Room::kYes) {
      queue_.push(std::move(work));
    }
    return room;
  }
  /// The name of the next task; empty when there is none.
  std::string take(Which which = Which::kAny) {
    auto work = queue_.take(which);
    if (!work) {
      return "";
    }
    work->run();
    return taken_.back();
  }
  std::vector<std::string> take_all() {
    std::vector<std::string> names;
    for (std::string name = take(); !name.empty(); name = take()) {
      names.push_back(name);
    }
    return names;
  }

  WorkQueue queue_{{.tasks_max = 100, .bytes_max = 100 * kMiB, .short_bytes = 64 << 10}};
  std::vector<std::string> taken_;
};

TEST_F(WorkQueueTest, AShortTaskPassesTheLongOnesOfOthers) {
  for (int i = 0; i < 5; ++i) {
    push(1, "long", 10 * kMiB);
  }
  push(2, "short", 10'000);

  EXPECT_EQ(take(), "short");
  EXPECT_EQ(take(), "long");
}

TEST_F(WorkQueueTest, AShortTaskPassesTheLongOnesOfItsOwnClient) {
  push(1, "long", 10 * kMiB);
  push(1, "short", 10'000);

  EXPECT_EQ(take_all(), (std::vector<std::string>{"short", "long"}));
}

TEST_F(WorkQueueTest, ClientsTakeTurns) {
  for (int i = 0; i < 3; ++i) {
    push(1, "a", 1000);
  }
  for (int i = 0; i < 3; ++i) {
    push(2, "b", 1000);
  }

  EXPECT_EQ(take_all(), (std::vector<std::string>{"a", "b", "a", "b", "a", "b"}));
}

TEST_F(WorkQueueTest, TurnsAreByBytesNotByTasks) {
  for (int i = 0; i < 2; ++i) {
    push(1, "whale", 10 * kMiB);
  }
  for (int i = 0; i < 12; ++i) {
    push(2, "minnow", kMiB);
  }

  const auto names = take_all();

  EXPECT_EQ(std::ranges::find(names, "whale") - names.begin(), 7);  // Q1; by bytes it would be 9
  EXPECT_EQ(names.size(), 14U);
}

TEST_F(WorkQueueTest, ALongTaskIsNotStarvedByShortOnes) {
  push(1, "long", 50 * kMiB);
  uint32_t before = 0;
  for (WorkClient client = 2; before < 100; ++client) {
    push(client, "short", 10);
    push(client, "short", 10);
    if (take() == "long") {
      break;
    }
    ++before;
  }

  EXPECT_LT(before, WorkQueue::kOldestEvery);
}

TEST_F(WorkQueueTest, RequestsGoBeforeBackgroundWork) {
  push(1, "background", 10, WorkPriority::kBackground);
  push(1, "request", kMiB);

  EXPECT_EQ(take_all(), (std::vector<std::string>{"request", "background"}));
}

TEST_F(WorkQueueTest, WaitingEarnsNoCredit) {
  for (int i = 0; i < 5; ++i) {
    push(1, "busy", kMiB);
  }
  for (int i = 0; i < 3; ++i) {
    take();
  }
  // A client that comes now begins where the others are: they go on taking turns.
  for (int i = 0; i < 3; ++i) {
    push(2, "fresh", kMiB);
  }

  EXPECT_EQ(take(), "fresh");
  EXPECT_EQ(take(), "busy");
  EXPECT_EQ(take(), "fresh");
}

TEST_F(WorkQueueTest, OneClientLeavesRoomForOthers) {
  size_t mine = 0;
  while (push(1, "mine", 10) == Room::kYes) {
    ++mine;
  }

  EXPECT_EQ(mine, 75U);
  EXPECT_EQ(push(1, "mine", 10), Room::kClientFull);
  EXPECT_EQ(push(2, "other", 10), Room::kYes);
  take();
  take();
  EXPECT_EQ(push(1, "mine", 10), Room::kYes);
}

TEST_F(WorkQueueTest, OneClientsBytesLeaveRoomForOthers) {
  EXPECT_EQ(push(1, "a", 50 * kMiB), Room::kYes);
  EXPECT_EQ(push(1, "b", 50 * kMiB), Room::kClientFull);
  EXPECT_EQ(push(2, "c", 50 * kMiB), Room::kYes);
  EXPECT_EQ(push(3, "d", 1), Room::kFull);
  EXPECT_EQ(queue_.bytes(), 100 * kMiB);
}

TEST_F(WorkQueueTest, TheProcessItselfIsBoundByTheWholeOnly) {
  size_t ours = 0;
  while (push(0, "ours", 10) == Room::kYes) {
    ++ours;
  }

  EXPECT_EQ(ours, 100U);
}

TEST_F(WorkQueueTest, OnlyShortTasksAreTakenWhereThoseAreAskedFor) {
  push(1, "long", kMiB);
  EXPECT_FALSE(queue_.has(Which::kShort));
  EXPECT_EQ(take(Which::kShort), "");
  push(2, "background", 10, WorkPriority::kBackground);
  push(1, "short", 64 << 10);
  EXPECT_TRUE(queue_.has(Which::kShort));

  EXPECT_EQ(take(Which::kShort), "short");
  EXPECT_EQ(take(Which::kShort), "background");
  EXPECT_FALSE(queue_.has(Which::kShort));
  EXPECT_TRUE(queue_.has(Which::kAny));
  EXPECT_EQ(take(), "long");
}

TEST_F(WorkQueueTest, ThousandsOfClientsThatLeftAreForgotten) {
  for (WorkClient client = 1; client <= 5000; ++client) {
    ASSERT_EQ(push(client, "x", 10), Room::kYes);
    ASSERT_EQ(take(), "x");
  }

  EXPECT_EQ(queue_.size(), 0U);
  EXPECT_EQ(queue_.bytes(), 0U);
  EXPECT_LE(queue_.clients(), 1025U);
}

}  // namespace
}  // namespace stator::net
