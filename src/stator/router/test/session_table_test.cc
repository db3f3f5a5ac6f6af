// SPDX-License-Identifier: Apache-2.0
#include "stator/router/session_table.h"

#include <gtest/gtest.h>

#include "stator/router/router.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};

TEST(SessionTable, AnIdleSessionIsForgottenAfterItsTtl) {
  SessionTable table({.ttl = 60s});
  table.bind("s", kA, TimePoint());
  EXPECT_EQ(table.find("s", TimePoint(60s))->worker, kA);
  EXPECT_EQ(table.find("s", TimePoint(61s)), nullptr);
  EXPECT_EQ(table.find("other", TimePoint()), nullptr);
}

TEST(SessionTable, ARunningRequestKeepsItsSession) {
  SessionTable table({.ttl = 60s});
  auto running = table.bind("s", kA, TimePoint());
  EXPECT_NE(table.find("s", TimePoint(10min)), nullptr);
  running->idle_since_ns = TimePoint(10min).time_since_epoch().count();
  running.reset();
  EXPECT_NE(table.find("s", TimePoint(11min)), nullptr);
  EXPECT_EQ(table.find("s", TimePoint(12min)), nullptr);
}

TEST(SessionTable, AFailureBreaksTheBinding) {
  SessionTable table({.ttl = 60s});
  table.bind("s", kA, TimePoint())->failed = true;
  EXPECT_EQ(table.find("s", TimePoint()), nullptr);
  table.bind("s", kB, TimePoint());
  EXPECT_EQ(table.find("s", TimePoint())->worker, kB);
}

TEST(SessionTable, IsBounded) {
  SessionTable table({.ttl = 60s, .sessions_max = 2});
  EXPECT_NE(table.bind("a", kA, TimePoint()), nullptr);
  EXPECT_NE(table.bind("b", kA, TimePoint()), nullptr);
  EXPECT_EQ(table.bind("c", kA, TimePoint()), nullptr);
  EXPECT_NE(table.bind("a", kB, TimePoint()), nullptr) << "known sessions still move";
  EXPECT_EQ(table.bind(std::string(257, 'x'), kA, TimePoint()), nullptr);
  EXPECT_EQ(table.refused(), 2U);
  EXPECT_NE(table.bind("c", kA, TimePoint(2min)), nullptr) << "the others have expired";
  EXPECT_EQ(table.size(), 1U);
}

TEST(SessionTable, ForgetsWhoSaysThatNothingMoreComes) {
  SessionTable table({.ttl = 60s});
  table.bind("s", kA, TimePoint());
  EXPECT_TRUE(table.forget("s"));
  EXPECT_FALSE(table.forget("s"));
  EXPECT_EQ(table.find("s", TimePoint()), nullptr);
}

class SessionRouting : public ::testing::Test {
 protected:
  SessionRouting() {
    RouterConfig config;
    config.mode = "round_robin";
    config.sessions.ttl = 60s;
    router_ = std::move(*Router::create(config, LoadBook::make(clock_), Random(1)));
    router_->add_worker(kA);
    router_->add_worker(kB);
  }
  Decision route(std::string_view session) {
    return std::move(
        *router_->route({.request_id = "r", .model = "m", .prompt_tokens = 16, .session = session},
                        clock_.wall_now()));
  }

  SimClock clock_;
  std::unique_ptr<Router> router_;
};

TEST_F(SessionRouting, ASessionStaysWhereItWas) {
  const WorkerKey home = route("s").worker;
  for (int i = 0; i < 5; ++i) {
    route("");
    const Decision decision = route("s");
    EXPECT_EQ(decision.worker, home);
    EXPECT_EQ(decision.receipt.reason, "where its session is");
  }
  clock_.advance(2min);
  const WorkerKey before = route("").worker;
  EXPECT_NE(route("s").worker, before) << "forgotten: its turn like any other";
}

TEST_F(SessionRouting, ASessionMovesWhenItsWorkerCannotTakeIt) {
  const WorkerKey home = route("s").worker;
  router_->set_draining(home, true);
  const WorkerKey other = route("s").worker;
  EXPECT_NE(other, home);
  router_->set_draining(home, false);
  EXPECT_EQ(route("s").worker, other) << "its cache is there now";
}

TEST_F(SessionRouting, AFailedRequestFreesItsSession) {
  Decision first = route("s");
  first.lease.mark_failed();
  first.lease.release();
  EXPECT_NE(route("s").worker, first.worker) << "round robin goes on";
}

TEST_F(SessionRouting, ALongStreamKeepsItsSession) {
  Decision stream = route("s");
  clock_.advance(1h);
  stream.lease.release();
  clock_.advance(59s);
  route("");
  EXPECT_EQ(route("s").worker, stream.worker);
}

}  // namespace
}  // namespace stator::router
