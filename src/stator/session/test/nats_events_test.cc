// SPDX-License-Identifier: Apache-2.0
// Publisher and followers over a real nats-server that is killed and started again.
#include <gtest/gtest.h>

#include <condition_variable>
#include <set>

#include "stator/core/mutex.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/nats_connection.h"
#include "stator/kv_events/test/nats_server.h"
#include "stator/net/shard.h"
#include "stator/session/nats_connector.h"

namespace stator::session {
namespace {

using blocks::ExternalHash;

/// What a router would know.
class Mirror final : public kv_events::KvEventsListener {
 public:
  void on_snapshot(WorkerId /*worker*/, std::vector<kv::KvEvent> blocks) override {
    const MutexLock lock(mutex_);
    ++snapshots_;
    held_.clear();
    apply(blocks);
  }
  void on_events(WorkerId /*worker*/, std::vector<kv::KvEvent> events) override {
    const MutexLock lock(mutex_);
    apply(events);
  }
  testing::AssertionResult becomes(const kv::EventLog& log) {
    std::set<uint64_t> wanted;
    for (const auto& run : log.snapshot().stored) {
      for (const auto& block : run.blocks) {
        wanted.insert(block.external.value());
      }
    }
    MutexLock lock(mutex_);
    const bool equal = changed_.wait_for(lock, std::chrono::seconds(60),
                                         [&]() STATOR_REQUIRES(mutex_) { return held_ == wanted; });
    return equal ? testing::AssertionSuccess()
                 : testing::AssertionFailure()
                       << held_.size() << " blocks instead of " << wanted.size();
  }
  int snapshots() {
    const MutexLock lock(mutex_);
    return snapshots_;
  }

 private:
  void apply(const std::vector<kv::KvEvent>& events) STATOR_REQUIRES(mutex_) {
    for (const kv::KvEvent& event : events) {
      if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
        for (const auto& block : stored->blocks) {
          held_.insert(block.external.value());
        }
      } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data)) {
        for (const auto block : removed->blocks) {
          held_.erase(block.value());
        }
      } else {
        held_.clear();
      }
    }
    changed_.notify_all();
  }

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::set<uint64_t> held_ STATOR_GUARDED_BY(mutex_);
  int snapshots_ STATOR_GUARDED_BY(mutex_) = 0;
};

/// A run of `count` blocks from `first` on.
kv::BlocksStored store(uint64_t first, uint64_t count = 1) {
  kv::BlocksStored run;
  for (uint64_t block = first; block < first + count; ++block) {
    run.blocks.push_back({ExternalHash(block), blocks::LocalHash(block)});
  }
  return run;
}

class NatsEventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kv_events::test::NatsServer::binary().empty()) {
      FAIL() << "nats-server is not installed: see setup.sh";
    }
    server_.emplace();
    record_.key.worker = WorkerId(7);
    record_.incarnation = Incarnation(100);
    worker_nats_ = kv_events::NatsConnection::open({.url = server_->url()}, metrics_).value();
    frontend_nats_ = kv_events::NatsConnection::open({.url = server_->url()}, metrics_).value();
    shards_.start();
    connector_ = make_nats_connector(nullptr, *frontend_nats_, metrics_);
  }
  void TearDown() override {
    if (server_) {
      on_loop([&] { followed_.reset(); });
    }
    shards_.stop();
  }
  void on_loop(const std::function<void()>& task) {
    ASSERT_TRUE(shards_.shard(0).run_and_wait([&] { task(); }));
  }
  void publish() {
    auto started = kv_events::EventPublisher::start(*worker_nats_, record_, log_, clock_, metrics_);
    ASSERT_TRUE(started.has_value());
    publisher_ = std::move(*started);
  }
  void follow() {
    on_loop([&] { followed_ = connector_->follow_events(record_, shards_.shard(0), mirror_); });
  }

  SystemClock clock_;
  Metrics metrics_;
  std::optional<kv_events::test::NatsServer> server_;
  std::unique_ptr<kv_events::NatsConnection> worker_nats_;
  std::unique_ptr<kv_events::NatsConnection> frontend_nats_;
  discovery::InstanceRecord record_;
  kv::EventLog log_{0, {.events_max = 64}};
  Mirror mirror_;
  net::ShardSet shards_{1, clock_, metrics_};
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<kv_events::EventFollower> followed_;
  std::unique_ptr<kv_events::EventPublisher> publisher_;
};

TEST_F(NatsEventsTest, AFollowerGetsWhatIsThereAndWhatComes) {
  log_.append(store(1, 3 * kv_events::kEnvelopeBlocksMax));  // a dump of several parts
  publish();
  follow();
  ASSERT_TRUE(mirror_.becomes(log_));

  for (uint64_t i = 0; i < 1000; ++i) {
    log_.append(store(1'000'000 + i));
  }
  log_.append(kv::BlocksRemoved{{ExternalHash(1)}});

  EXPECT_TRUE(mirror_.becomes(log_));
}

TEST_F(NatsEventsTest, AFollowerThatIsFirstWaitsForItsWorker) {
  follow();
  log_.append(store(1));

  publish();

  EXPECT_TRUE(mirror_.becomes(log_));
}

TEST_F(NatsEventsTest, ABrokerThatIsKilledCostsNothingButTime) {
  publish();
  follow();
  log_.append(store(1));
  ASSERT_TRUE(mirror_.becomes(log_));

  server_->kill();
  log_.append(store(2));
  server_->restart();
  log_.append(store(3));

  EXPECT_TRUE(mirror_.becomes(log_));
}

TEST_F(NatsEventsTest, ABrokerAwayForLongerThanTheLogReachesEndsInADump) {
  publish();
  follow();
  log_.append(store(1));
  ASSERT_TRUE(mirror_.becomes(log_));
  const int before = mirror_.snapshots();

  server_->kill();
  while (worker_nats_->connected()) {
    std::this_thread::yield();
  }
  for (uint64_t i = 0; i < 500; ++i) {
    log_.append(store(10 + i));
  }
  server_->restart();

  EXPECT_TRUE(mirror_.becomes(log_));
  EXPECT_GT(mirror_.snapshots(), before);
}

TEST_F(NatsEventsTest, AnEventTooLargeForTheBrokerArrivesAsADump) {
  publish();
  follow();
  log_.append(store(1));
  ASSERT_TRUE(mirror_.becomes(log_));

  log_.append(store(1'000'000, 100'000));  // several MB in one event
  log_.append(store(2));

  EXPECT_TRUE(mirror_.becomes(log_));
  EXPECT_GE(metrics_.counter("stator_events_oversized_total", "").value(), 1U);
}

TEST_F(NatsEventsTest, AWorkerThatRestartsUnderItsIdIsAnotherOne) {
  publish();
  follow();
  log_.append(store(1, 50));
  ASSERT_TRUE(mirror_.becomes(log_));
  publisher_.reset();

  kv::EventLog second_log;
  second_log.append(store(900));
  record_.incarnation = Incarnation(101);
  auto second =
      kv_events::EventPublisher::start(*worker_nats_, record_, second_log, clock_, metrics_);
  ASSERT_TRUE(second.has_value());

  EXPECT_TRUE(mirror_.becomes(second_log));
}

TEST_F(NatsEventsTest, MoreWorkersThanMayBeAskedAtOnceAllGetTheirTurn) {
  log_.append(store(1, 100));
  publish();
  std::vector<std::unique_ptr<Mirror>> mirrors;
  std::vector<std::unique_ptr<kv_events::EventFollower>> silent;
  const Gauge asking = metrics_.gauge("stator_events_plane_asking", "");
  on_loop([&] {
    for (uint64_t id = 1000; id < 1040; ++id) {  // nobody answers for these
      discovery::InstanceRecord record = record_;
      record.key.worker = WorkerId(id);
      mirrors.push_back(std::make_unique<Mirror>());
      silent.push_back(connector_->follow_events(record, shards_.shard(0), *mirrors.back()));
    }
    EXPECT_EQ(asking.value(), 16) << "refusals, which free turns, are heard on this loop";
  });

  follow();

  EXPECT_TRUE(mirror_.becomes(log_));
  on_loop([&] {
    silent.clear();
    followed_.reset();
  });
  EXPECT_EQ(asking.value(), 0);
}

TEST_F(NatsEventsTest, GarbageOnTheSubjectIsCountedAndPassedOver) {
  publish();
  follow();
  log_.append(store(1));
  ASSERT_TRUE(mirror_.becomes(log_));

  ASSERT_TRUE(worker_nats_->publish(kv_events::events_subject(record_.key), "garbage").has_value());
  ASSERT_TRUE(worker_nats_->publish(kv_events::events_query_subject(record_.key), "garbage", "x")
                  .has_value());
  log_.append(store(2));

  EXPECT_TRUE(mirror_.becomes(log_));
  EXPECT_EQ(metrics_.counter("stator_events_plane_corrupt_total", "").value(), 1U);
}

}  // namespace
}  // namespace stator::session
