// SPDX-License-Identifier: Apache-2.0
#include "stator/session/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/discovery/memory_discovery.h"
#include "stator/discovery/test/note_log.h"
#include "stator/session/test/worker_harness.h"

namespace stator::session {
namespace {

using test::Carrier;
using test::key;
using test::make_request;
using testing::ElementsAre;

class PoolRecorder final : public WorkerPoolListener, public discovery::NoteLog {
 public:
  void on_synced() override { note("synced"); }
  void on_worker_added(const discovery::InstanceRecord& record) override {
    note("added " + to_string(record.incarnation));
  }
  void on_worker_updated(const discovery::InstanceRecord& record) override {
    note("updated " + std::string(to_string(record.state)));
  }
  void on_worker_removed(WorkerId /*worker*/) override { note("removed"); }
};

class WorkerPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    harness_.on_loop([&] {
      WorkerPoolOptions options;
      options.reconnect_min = std::chrono::milliseconds(1);
      options.reconnect_max = std::chrono::milliseconds(20);
      pool_ = std::make_unique<WorkerPool>(options,
                                           WorkerPool::Wiring{*discovery_, harness_.connector(),
                                                              harness_.shard(), listener_, events_},
                                           harness_.metrics());
    });
    ASSERT_TRUE(listener_.wait_for("synced"));
  }
  void TearDown() override {
    harness_.on_loop([&] { pool_.reset(); });
  }
  void list_worker() {
    registration_ = std::move(discovery_->register_instance(harness_.record()).value());
  }
  double standing(const std::string& state) {
    return harness_.metrics().gauge("stator_runtime_pool_workers", "", {{"state", state}}).value();
  }
  bool has_session() {
    bool found = false;
    harness_.on_loop([&] { found = pool_->find_session(WorkerId(7)) != nullptr; });
    return found;
  }
  void restart_worker(uint64_t incarnation) {
    WorkerServerOptions same_port;
    same_port.port = harness_.server().port();
    harness_.stop_worker();
    harness_.record().incarnation = Incarnation(incarnation);
    harness_.start_server(same_port);
  }

  PoolRecorder listener_;
  test::SessionRecorder events_;
  test::WorkerHarness harness_{Carrier::kGrpc};
  std::unique_ptr<discovery::Discovery> discovery_ =
      discovery::make_memory_discovery(harness_.metrics());
  std::unique_ptr<discovery::Registration> registration_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerPoolTest, AListedWorkerIsConnectedAndAdded) {
  EXPECT_FALSE(has_session());
  list_worker();
  ASSERT_TRUE(listener_.wait_for("added 100"));
  EXPECT_TRUE(has_session());
  harness_.on_loop([&] { pool_->find_session(WorkerId(7))->submit(make_request(1)); });
  EXPECT_TRUE(events_.wait_for("accepted 1"));
}

TEST_F(WorkerPoolTest, RecordChangesArePassedOn) {
  list_worker();
  ASSERT_TRUE(listener_.wait_for("added 100"));
  discovery::InstanceRecord draining = harness_.record();
  draining.state = discovery::InstanceState::kDraining;
  ASSERT_TRUE(registration_->update(draining).has_value());
  EXPECT_TRUE(listener_.wait_for("updated draining"));
}

TEST_F(WorkerPoolTest, LosingDiscoveryLosesNoLiveWorker) {
  list_worker();
  ASSERT_TRUE(listener_.wait_for("added 100"));
  EXPECT_EQ(standing("active"), 1);
  registration_.reset();
  harness_.on_loop([] {});
  harness_.on_loop([] {});
  EXPECT_TRUE(has_session());
  EXPECT_EQ(standing("active"), 0);
  EXPECT_EQ(standing("unlisted"), 1);

  harness_.stop_worker();

  ASSERT_TRUE(listener_.wait_for("removed"));
  harness_.on_loop([&] { EXPECT_EQ(pool_->find_record(WorkerId(7)), nullptr); });
  EXPECT_EQ(standing("unlisted"), 0);
  EXPECT_EQ(harness_.metrics().counter("stator_runtime_pool_workers_gone_total", "").value(), 1U);
  EXPECT_THAT(listener_.lines(), ElementsAre("synced", "added 100", "removed"));
}

TEST_F(WorkerPoolTest, ALostWorkerThatIsStillListedIsReconnected) {
  list_worker();
  ASSERT_TRUE(listener_.wait_for("added 100"));
  harness_.on_loop([&] { pool_->find_session(WorkerId(7))->submit(make_request(1)); });
  ASSERT_TRUE(events_.wait_for("accepted 1"));
  restart_worker(100);

  ASSERT_TRUE(listener_.wait_for("added 100", 2));
  EXPECT_EQ(events_.count("closed disconnected"), 1U);
  EXPECT_TRUE(has_session());
}

TEST_F(WorkerPoolTest, ANewLifeIsRemovedThenAdded) {
  list_worker();
  ASSERT_TRUE(listener_.wait_for("added 100"));
  restart_worker(101);
  auto new_life = std::move(discovery_->register_instance(harness_.record()).value());

  ASSERT_TRUE(listener_.wait_for("added 101"));
  EXPECT_THAT(listener_.lines(), ElementsAre("synced", "added 100", "removed", "added 101"));
}

TEST_F(WorkerPoolTest, AWorkerThatNeverAnswersIsNeverAdded) {
  harness_.stop_worker();
  list_worker();
  harness_.on_loop([] {});
  harness_.on_loop([] {});
  EXPECT_EQ(standing("unreachable"), 1);
  registration_.reset();
  harness_.on_loop([] {});
  EXPECT_THAT(listener_.lines(), ElementsAre("synced"));
}

}  // namespace
}  // namespace stator::session
