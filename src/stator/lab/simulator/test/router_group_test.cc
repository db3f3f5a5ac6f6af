// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/router_group.h"

#include <gtest/gtest.h>

#include <set>

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kWorkers = 4;

class RouterGroupTest : public testing::Test {
 protected:
  std::unique_ptr<RouterGroup> make(uint32_t replicas, const std::string& mode = "least_loaded",
                                    const router::BusyThresholds& wait = {}) {
    router::RouterConfig config{.mode = mode, .wait = wait};
    config.replicas.interval = milliseconds(10);
    auto group = RouterGroup::create(replicas, config, 1, clock_);
    EXPECT_TRUE(group.has_value());
    for (uint32_t i = 1; i <= kWorkers; ++i) {
      (*group)->add_worker({WorkerId(i), 0}, {});
    }
    return std::move(*group);
  }

  std::variant<router::Decision, RouterGroup::Id> submit(
      RouterGroup& group, std::span<const blocks::SequenceHash> blocks = {}) {
    auto submitted = group.submit({.request_id = "r",
                                   .model = "m",
                                   .prompt_tokens = static_cast<uint32_t>(64 + blocks.size() * 16),
                                   .sequences = blocks},
                                  {.arrival = clock_.now()}, clock_.wall_now());
    EXPECT_TRUE(submitted.has_value());
    return std::move(*submitted);
  }

  router::Decision route(RouterGroup& group, std::span<const blocks::SequenceHash> blocks = {}) {
    return std::get<router::Decision>(submit(group, blocks));
  }

  /// Blocks of a prompt that the worker now holds.
  std::vector<blocks::SequenceHash> store(RouterGroup& group, WorkerId worker, uint64_t count) {
    kv::BlocksStored run;
    std::vector<blocks::SequenceHash> prompt;
    for (uint64_t i = 1; i <= count; ++i) {
      const blocks::LocalHash local(i * 77);
      prompt.push_back(prompt.empty() ? blocks::chain(local) : blocks::chain(prompt.back(), local));
      run.blocks.push_back({blocks::ExternalHash(prompt.back().value()), local});
    }
    group.apply({worker, 0}, {.event_id = 1, .data = run});
    return prompt;
  }

  /// Lets time pass until replicas may talk, and lets them.
  void sync(RouterGroup& group) {
    const auto due = group.next_sync();
    ASSERT_TRUE(due.has_value());
    clock_.advance(*due - clock_.now());
    group.sync(clock_.now());
  }

  SimClock clock_;
};

TEST_F(RouterGroupTest, OneRouterHasNobodyToHear) {
  const auto group = make(1);

  const router::Decision decision = route(*group);

  EXPECT_EQ(group->next_sync(), std::nullopt);
  EXPECT_EQ(group->booked(), 1);
}

TEST_F(RouterGroupTest, ReplicasKnowOfEachOthersBookingsAfterTheNextSync) {
  const auto group = make(kWorkers);
  std::vector<router::Decision> decisions;
  std::set<WorkerKey> chosen;

  for (uint32_t i = 0; i < kWorkers; ++i) {  // each by another router, each after a sync
    decisions.push_back(route(*group));
    chosen.insert(decisions.back().worker);
    sync(*group);
  }

  EXPECT_EQ(chosen.size(), kWorkers) << "the least loaded worker is another one each time";
  EXPECT_EQ(group->booked(), kWorkers * kWorkers) << "every router counts every booking";
}

TEST_F(RouterGroupTest, SyncsNoOftenerThanTheInterval) {
  const auto group = make(2);
  group->sync(clock_.now());

  const router::Decision first = route(*group);

  EXPECT_EQ(group->next_sync(), clock_.now() + milliseconds(10));
}

TEST_F(RouterGroupTest, NothingIsBookedOnceAllEndedAndWereHeardOf) {
  const auto group = make(3);
  {
    std::vector<router::Decision> decisions;
    for (int i = 0; i < 7; ++i) {
      decisions.push_back(route(*group));
    }
    group->sync(clock_.now());
    EXPECT_EQ(group->booked(), 21);
  }

  group->sync(clock_.now());

  EXPECT_EQ(group->booked(), 0);
  EXPECT_EQ(group->next_sync(), std::nullopt);
}

TEST_F(RouterGroupTest, EveryReplicaSeesTheBlocksThatWorkersHold) {
  const auto group = make(3, "kv");
  const std::vector<blocks::SequenceHash> prompt = store(*group, WorkerId(3), 20);

  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(route(*group, prompt).overlap_blocks, 20);
  }
}

TEST_F(RouterGroupTest, ReplicasWithoutTheIndexGoWhereTheBlocksAre) {
  const auto group = make(2, "kv");
  const std::vector<blocks::SequenceHash> prompt = store(*group, WorkerId(3), 20);
  route(*group);  // the first one's turn

  EXPECT_EQ(route(*group, prompt).worker.worker, WorkerId(3));
}

TEST_F(RouterGroupTest, WhatWaitsLeavesTheReplicaWhereItWaits) {
  const auto group = make(2, "least_loaded", {.prefill_tokens = 0});
  std::vector<router::Decision> running;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    running.push_back(route(*group));
    sync(*group);
  }

  const auto first = std::get<RouterGroup::Id>(submit(*group));
  const auto second = std::get<RouterGroup::Id>(submit(*group));
  EXPECT_NE(first, second);
  EXPECT_FALSE(group->next(clock_.now(), clock_.wall_now()).has_value());
  running.clear();
  sync(*group);
  EXPECT_TRUE(group->remove(second));
  const auto next = group->next(clock_.now(), clock_.wall_now());

  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->id, first);
  EXPECT_TRUE(next->decision.has_value());
  EXPECT_FALSE(group->next(clock_.now(), clock_.wall_now()).has_value());
}

TEST_F(RouterGroupTest, AWorkerThatLeftIsChosenByNobody) {
  const auto group = make(3);
  for (uint32_t i = 2; i <= kWorkers; ++i) {
    group->remove_worker({WorkerId(i), 0});
  }

  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(route(*group).worker.worker, WorkerId(1));
  }
}

TEST_F(RouterGroupTest, RefusesNoRouterAndNoInterval) {
  EXPECT_FALSE(RouterGroup::create(0, {}, 1, clock_).has_value());
  router::RouterConfig config;
  config.replicas.interval = {};
  EXPECT_FALSE(RouterGroup::create(2, config, 1, clock_).has_value());
}

}  // namespace
}  // namespace stator::simulator
