// SPDX-License-Identifier: Apache-2.0
#include "stator/router/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};

/// Two workers that are busy as soon as anything is to be computed there.
class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest() { start({}); }

  void start(QueueConfig queue) {
    RouterConfig config;
    config.mode = "least_loaded";
    config.wait.prefill_fraction = 0;
    config.queue = std::move(queue);
    book_ = LoadBook::make(clock_);
    auto router = Router::create(config, book_, Random(3));
    dispatcher_.emplace(std::move(*router), QueueOrder::kFcfs);
    dispatcher_->router().add_worker(kA);
    dispatcher_->router().add_worker(kB);
  }
  RouteRequest request(std::optional<WorkerId> pinned = std::nullopt) const {
    return {
        .request_id = "r", .model = "m", .prompt_tokens = 100, .constraints = {.pinned = pinned}};
  }
  /// The lease if it ran at once.
  std::optional<LoadLease> submit(const RouteRequest& request) {
    auto result = dispatcher_->submit(request, {.arrival = clock_.now()}, {});
    EXPECT_TRUE(result.has_value());
    if (auto* decision = std::get_if<Decision>(&*result)) {
      return std::move(decision->lease);
    }
    last_id_ = std::get<Dispatcher::Id>(*result);
    return std::nullopt;
  }
  std::optional<Dispatcher::Outcome> next() { return dispatcher_->next(clock_.now(), {}); }

  SimClock clock_;
  std::shared_ptr<LoadBook> book_;
  std::optional<Dispatcher> dispatcher_;
  Dispatcher::Id last_id_ = 0;
};

TEST_F(DispatcherTest, RequestsWaitOnlyWhenAllWorkersAreBusy) {
  auto first = submit(request());
  auto second = submit(request());
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(submit(request()));
  EXPECT_FALSE(next());

  clock_.advance(30ms);
  first->mark_prefill_completed();
  auto outcome = next();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->id, last_id_);
  ASSERT_TRUE(outcome->decision.has_value());
  EXPECT_EQ(outcome->decision->receipt.queued, 30ms);
  EXPECT_FALSE(next());
}

TEST_F(DispatcherTest, WhoComesLaterDoesNotOvertake) {
  auto first = submit(request());
  auto second = submit(request());
  EXPECT_FALSE(submit(request()));
  const auto waiting = last_id_;
  first->release();
  EXPECT_FALSE(submit(request())) << "somebody was here before";
  EXPECT_EQ(next()->id, waiting);
}

TEST_F(DispatcherTest, APinnedRequestHoldsUpNobodyElse) {
  auto on_a = submit(request(kA.worker));
  EXPECT_FALSE(submit(request(kA.worker)));
  EXPECT_FALSE(submit(request())) << "goes through the queue, but not behind the pinned one";
  const auto outcome = next();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->id, last_id_);
  EXPECT_EQ(outcome->decision->worker, kB);
}

TEST_F(DispatcherTest, ARequestThatCanNeverRunLeavesWithItsError) {
  auto on_a = submit(request(kA.worker));
  EXPECT_FALSE(submit(request(kA.worker)));
  dispatcher_->router().remove_worker(kA);
  const auto outcome = next();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->decision.error().code(), Code::kNotFound);
}

TEST_F(DispatcherTest, RemovedRequestsAreGone) {
  auto first = submit(request());
  auto second = submit(request());
  EXPECT_FALSE(submit(request()));
  EXPECT_TRUE(dispatcher_->remove(last_id_));
  EXPECT_FALSE(dispatcher_->remove(last_id_));
  first->release();
  EXPECT_FALSE(next());
  EXPECT_EQ(dispatcher_->queue().bytes(), 0U);
}

TEST_F(DispatcherTest, AFullQueueShedsAndSaysWhy) {
  start({.requests_max = 1});
  auto first = submit(request());
  auto second = submit(request());
  EXPECT_FALSE(submit(request()));
  const auto refused = dispatcher_->submit(request(), {.arrival = clock_.now()}, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kOverloaded);
  EXPECT_THAT(refused.error().message(), HasSubstr("request_limit"));
  EXPECT_EQ(dispatcher_->last_shed(), Shed::kRequests);
}

TEST_F(DispatcherTest, InAFullQueueTheLowestPriorityGivesWay) {
  start({.requests_max = 2});
  auto first = submit(request());
  auto second = submit(request());
  const auto wait = [&](uint32_t strict_priority) {
    return dispatcher_->submit(request(),
                               {.arrival = clock_.now(), .strict_priority = strict_priority}, {});
  };
  const auto low = std::get<Dispatcher::Id>(*wait(1));
  const auto newest_low = std::get<Dispatcher::Id>(*wait(1));
  EXPECT_FALSE(wait(1).has_value()) << "its equals were here before";
  EXPECT_FALSE(wait(0).has_value());
  EXPECT_TRUE(dispatcher_->expire(clock_.now()).empty());

  const auto high = std::get<Dispatcher::Id>(*wait(2));

  const auto out = dispatcher_->expire(clock_.now());
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].id, newest_low);
  EXPECT_EQ(out[0].shed, Shed::kDisplaced);
  EXPECT_EQ(out[0].decision.error().code(), Code::kOverloaded);
  first->release();
  EXPECT_EQ(next()->id, high);
  second->release();
  EXPECT_EQ(next()->id, low);
}

TEST_F(DispatcherTest, NobodyGivesWayToWhatDoesNotFitAnyway) {
  start({.bytes_max = 10'000});
  auto first = submit(request());
  auto second = submit(request());
  EXPECT_FALSE(submit(request()));
  EXPECT_FALSE(dispatcher_
                   ->submit(request(),
                            {.arrival = clock_.now(), .strict_priority = 1, .held_bytes = 10'000},
                            {})
                   .has_value());
  EXPECT_TRUE(dispatcher_->expire(clock_.now()).empty());
  EXPECT_EQ(dispatcher_->queue().size(), 1U);
}

TEST_F(DispatcherTest, BytesHeldElsewhereCount) {
  start({.bytes_max = 10'000});
  auto first = submit(request());
  auto second = submit(request());
  const auto refused =
      dispatcher_->submit(request(), {.arrival = clock_.now(), .held_bytes = 10'000}, {});
  EXPECT_EQ(refused.error().code(), Code::kOverloaded);
  EXPECT_EQ(dispatcher_->last_shed(), Shed::kBytes);
}

TEST_F(DispatcherTest, NobodyWaitsLongerThanAllowed) {
  start({.wait_max = 5s});
  auto first = submit(request());
  auto second = submit(request());
  EXPECT_FALSE(submit(request()));
  clock_.advance(6s);
  const auto late = dispatcher_->expire(clock_.now());
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].id, last_id_);
  EXPECT_EQ(late[0].decision.error().code(), Code::kOverloaded);
  EXPECT_FALSE(dispatcher_->remove(last_id_));
}

TEST_F(DispatcherTest, WaitingRequestsOwnWhatTheyNeed) {
  auto first = submit(request());
  auto second = submit(request());
  {
    std::vector<WorkerId> allowed = {kB.worker};
    std::string id = "a request id that is long enough to live on the heap";
    RouteRequest temporary = request();
    temporary.request_id = id;
    temporary.constraints.allowed = allowed;
    EXPECT_FALSE(submit(temporary));
    id.assign(id.size(), 'x');
    allowed[0] = kA.worker;
  }
  first->release();
  second->release();
  const auto outcome = next();
  ASSERT_TRUE(outcome && outcome->decision);
  EXPECT_EQ(outcome->decision->worker, kB);
  EXPECT_THAT(outcome->decision->receipt.request_id, HasSubstr("long enough"));
}

/// Random arrivals, endings and cancellations: nothing is lost, and whoever waits has a reason
/// (D1).
TEST_F(DispatcherTest, NoWakeUpIsLost) {
  start({.requests_max = 50});
  Random random(11);
  std::vector<LoadLease> running;
  size_t waiting = 0;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t action = random.below(4);
    if (action < 2) {
      const uint64_t who = random.below(4);
      const RouteRequest wish = request(who == 0   ? std::optional(kA.worker)
                                        : who == 1 ? std::optional(kB.worker)
                                                   : std::nullopt);
      auto result = dispatcher_->submit(wish, {.arrival = clock_.now()}, {});
      if (!result) {
        EXPECT_EQ(waiting, 50U);
      } else if (auto* decision = std::get_if<Decision>(&*result)) {
        running.push_back(std::move(decision->lease));
      } else {
        ++waiting;
      }
    } else if (!running.empty()) {
      const size_t i = random.below(running.size());
      if (action == 2) {
        running[i].mark_prefill_completed();
      } else {
        std::swap(running[i], running.back());
        running.pop_back();
      }
    }
    while (auto outcome = next()) {
      ASSERT_TRUE(outcome->decision.has_value());
      running.push_back(std::move(outcome->decision->lease));
      --waiting;
    }
    ASSERT_EQ(dispatcher_->queue().size(), waiting);
    if (waiting > 0) {
      std::array<LoadRow, 2> rows;
      const std::array<LoadSlot, 2> slots = {0, 1};
      book_->read(slots, rows);
      ASSERT_TRUE(rows[0].prefill_tokens > 0 || rows[1].prefill_tokens > 0);
    }
  }
  running.clear();
  while (auto outcome = next()) {
    --waiting;
  }
  EXPECT_EQ(waiting, 0U);
  EXPECT_EQ(book_->total_requests(), 0);
}

}  // namespace
}  // namespace stator::router
