// SPDX-License-Identifier: Apache-2.0
#include "stator/net/job_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

namespace stator::net {
namespace {

using Turn = JobThread::Turn;

TEST(JobThread, RunsJobsInOrderOnAThreadOfItsOwn) {
  JobThread jobs("jobs");
  std::vector<int> ran;
  std::promise<std::thread::id> done;
  for (int i = 0; i < 3; ++i) {
    jobs.add([&ran, i](Turn turn) {
      EXPECT_EQ(turn, Turn::kRun);
      ran.push_back(i);
    });
  }
  jobs.add([&done](Turn) { done.set_value(std::this_thread::get_id()); });

  EXPECT_NE(done.get_future().get(), std::this_thread::get_id());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
}

TEST(JobThread, StopTellsThoseThatWaitAndThoseThatComeLater) {
  JobThread jobs("jobs");
  std::promise<void> begun;
  std::promise<void> go_on;
  std::vector<Turn> turns;
  jobs.add([&](Turn) {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  jobs.add([&turns](Turn turn) { turns.push_back(turn); });

  go_on.set_value();
  jobs.stop();
  jobs.add([&turns](Turn turn) { turns.push_back(turn); });
  jobs.stop();

  // The second job's turn may come before the stop.
  ASSERT_EQ(turns.size(), 2U) << "J1";
  EXPECT_EQ(turns.back(), Turn::kStopped);
}

TEST(JobThread, WithoutJobsThereIsNothingToStop) {
  JobThread jobs("jobs");
  jobs.stop();
  bool told = false;
  jobs.add([&told](Turn turn) { told = turn == Turn::kStopped; });
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace stator::net
