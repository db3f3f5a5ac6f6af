// SPDX-License-Identifier: Apache-2.0
// Workers and frontends whose events a real nats-server keeps on its disk.
#include "stator/kv_events/durable_events.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <set>
#include <thread>

#include "stator/core/mutex.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/jet_stream.h"
#include "stator/kv_events/object_store.h"
#include "stator/kv_events/test/nats_server.h"
#include "stator/net/shard.h"
#include "stator/session/nats_connector.h"

namespace stator::session {
namespace {

using blocks::ExternalHash;
using kv_events::test::NatsServer;

kv::BlocksStored store(uint64_t block) {
  return {std::nullopt, {{ExternalHash(block), blocks::LocalHash(block)}}};
}

std::set<uint64_t> blocks_in(const std::vector<kv::KvEvent>& events) {
  std::set<uint64_t> out;
  for (const kv::KvEvent& event : events) {
    for (const auto& block : std::get<kv::BlocksStored>(event.data).blocks) {
      out.insert(block.external.value());
    }
  }
  return out;
}

/// What a router would know.
class Mirror final : public kv_events::KvEventsListener {
 public:
  void on_snapshot(WorkerId /*worker*/, std::vector<kv::KvEvent> blocks) override {
    const MutexLock lock(mutex_);
    held_ = blocks_in(blocks);
    changed_.notify_all();
  }
  void on_events(WorkerId /*worker*/, std::vector<kv::KvEvent> events) override {
    const MutexLock lock(mutex_);
    held_.merge(blocks_in(events));
    changed_.notify_all();
  }
  bool becomes(const std::set<uint64_t>& wanted) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&]() STATOR_REQUIRES(mutex_) { return held_ == wanted; });
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::set<uint64_t> held_ STATOR_GUARDED_BY(mutex_);
};

class DurableEventsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    record_.key.worker = WorkerId(7);
    record_.incarnation = Incarnation(100);
    worker_nats_ = connect(worker_metrics_);
    shards_.start();
  }
  void TearDown() override {
    leave();
    publisher_.reset();
    shards_.stop();
  }
  std::unique_ptr<kv_events::NatsConnection> connect(Metrics& metrics) {
    return kv_events::NatsConnection::open({.url = server_.url()}, metrics).value();
  }
  void on_loop(const std::function<void()>& task) {
    ASSERT_TRUE(shards_.shard(0).run_and_wait([&] { task(); }));
  }
  void publish() {
    auto sink = kv_events::DurableSink::make(config_, *worker_nats_, record_.key).value();
    publisher_ = kv_events::EventPublisher::start(*worker_nats_, record_, log_, clock_,
                                                  worker_metrics_, std::move(sink))
                     .value();
  }
  /// A frontend that knows nothing yet.
  void join() {
    leave();
    metrics_.emplace();
    frontend_nats_ = connect(*metrics_);
    auto durable =
        kv_events::DurableEvents::start(config_, *frontend_nats_, clock_, *metrics_).value();
    connector_ = make_nats_connector(nullptr, *frontend_nats_, *metrics_, std::move(durable));
    mirror_.emplace();
    on_loop([&] { followed_ = connector_->follow_events(record_, shards_.shard(0), *mirror_); });
  }
  void leave() {
    on_loop([&] { followed_.reset(); });
    connector_.reset();
    frontend_nats_.reset();
  }
  uint64_t count(const char* name) { return metrics_->counter(name, "").value(); }
  uint64_t stored() { return worker_metrics_.counter("stator_events_stored_total", "").value(); }
  void wait(const std::function<bool()>& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(condition());
  }
  /// The broker has the log's newest event, and the worker is gone: nobody can be asked.
  void end_worker(uint64_t events) {
    ASSERT_EQ(log_.last_id(), events);
    const auto jet_stream = kv_events::JetStream::open(*worker_nats_).value();
    wait([&] {
      const auto newest = jet_stream->newest(kv_events::durable_stream(record_.key),
                                             kv_events::events_subject(record_.key));
      return newest && *newest &&
             kv_events::decode_envelope((*newest)->payload)->last_event_id == events;
    });
    publisher_.reset();
  }
  double unsent() { return worker_metrics_.gauge("stator_events_unsent", "").value(); }

  SystemClock clock_;
  Metrics worker_metrics_;
  NatsServer server_{NatsServer::JetStream::kOn};
  std::unique_ptr<kv_events::NatsConnection> worker_nats_;
  kv_events::DurableEventsConfig config_;
  discovery::InstanceRecord record_;
  kv::EventLog log_{0, {.events_max = 64}};
  std::unique_ptr<kv_events::EventPublisher> publisher_;
  net::ShardSet shards_{1, clock_, worker_metrics_};

  std::optional<Metrics> metrics_;
  std::unique_ptr<kv_events::NatsConnection> frontend_nats_;
  std::unique_ptr<Connector> connector_;
  std::optional<Mirror> mirror_;
  std::unique_ptr<kv_events::EventFollower> followed_;
};

TEST_F(DurableEventsTest, ANewcomerLearnsWhatAWorkerHoldsWithoutAskingIt) {
  publish();
  log_.append(store(1));
  log_.append(store(2));
  end_worker(2);

  join();

  EXPECT_TRUE(mirror_->becomes({1, 2}));
  EXPECT_EQ(count("stator_events_durable_restored_total"), 1U);
  EXPECT_EQ(count("stator_events_plane_queries_total"), 0U);
}

TEST_F(DurableEventsTest, WhatComesAfterwardsIsFollowed) {
  publish();
  log_.append(store(1));
  wait([&] { return stored() > 0; });
  join();
  ASSERT_TRUE(mirror_->becomes({1}));

  log_.append(store(2));

  EXPECT_TRUE(mirror_->becomes({1, 2}));
  EXPECT_EQ(count("stator_events_plane_queries_total"), 0U);
}

TEST_F(DurableEventsTest, ABrokerThatWasKilledStillKnows) {
  publish();
  log_.append(store(1));
  wait([&] { return stored() > 0; });
  server_.kill();
  log_.append(store(2));
  server_.restart();
  end_worker(2);

  join();

  EXPECT_TRUE(mirror_->becomes({1, 2}));
  EXPECT_EQ(count("stator_events_plane_queries_total"), 0U);
}

TEST_F(DurableEventsTest, AFullStreamBecomesASnapshotThatANewcomerReads) {
  config_.snapshot_threshold = 3;
  config_.settle = {};
  publish();
  join();
  for (uint64_t block = 1; block <= 6; ++block) {
    log_.append(store(block));
    wait([&] { return unsent() == 0 && stored() >= block; });
  }
  wait([&] { return count("stator_events_durable_snapshots_total") > 0; });
  log_.append(store(7));
  wait([&] { return stored() >= 7; });
  end_worker(7);
  auto jet_stream = kv_events::JetStream::open(*worker_nats_).value();
  EXPECT_LT(jet_stream->state(kv_events::durable_stream(record_.key))->messages, 3U);
  const kv_events::ObjectStore objects(*jet_stream, kv_events::durable_bucket(record_.key), 1);
  EXPECT_EQ(objects.stream(), "OBJ_namespace-default-component-backend-radix-bucket");

  join();

  EXPECT_TRUE(mirror_->becomes({1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(count("stator_events_durable_restored_total"), 1U);
  EXPECT_EQ(count("stator_events_plane_queries_total"), 0U);
}

TEST_F(DurableEventsTest, WhereTheBrokerLacksSomethingTheWorkerIsAsked) {
  publish();
  log_.append(store(1));
  wait([&] { return stored() > 0; });
  auto jet_stream = kv_events::JetStream::open(*worker_nats_).value();
  ASSERT_TRUE(jet_stream->purge_below(kv_events::durable_stream(record_.key), 100).has_value());
  log_.append(store(2));
  wait([&] { return stored() > 1; });

  join();

  EXPECT_TRUE(mirror_->becomes({1, 2}));
  EXPECT_EQ(count("stator_events_durable_unknown_total"), 1U);
  EXPECT_EQ(metrics_->gauge("stator_events_durable_incomplete_workers", "").value(), 1);
}

TEST_F(DurableEventsTest, AnotherLifeOfTheWorkerIsNotBelieved) {
  publish();
  log_.append(store(1));
  wait([&] { return stored() > 0; });
  publisher_.reset();
  record_.incarnation = Incarnation(101);
  kv::EventLog second;
  second.append(store(9));
  auto sink = kv_events::DurableSink::make(config_, *worker_nats_, record_.key).value();
  publisher_ = kv_events::EventPublisher::start(*worker_nats_, record_, second, clock_,
                                                worker_metrics_, std::move(sink))
                   .value();

  join();

  EXPECT_TRUE(mirror_->becomes({9}));
  leave();
  publisher_.reset();
}

TEST_F(DurableEventsTest, ASnapshotThatIsDamagedIsCountedAndReplaced) {
  publish();
  log_.append(store(1));
  wait([&] { return stored() > 0; });
  auto jet_stream = kv_events::JetStream::open(*worker_nats_).value();
  kv_events::ObjectStore objects(*jet_stream, kv_events::durable_bucket(record_.key), 1 << 20);
  ASSERT_TRUE(objects.ensure().has_value());
  ASSERT_TRUE(objects.put(std::string(kv_events::kDurableObject), "no snapshot", 0).has_value());

  join();

  EXPECT_TRUE(mirror_->becomes({1}));
  EXPECT_EQ(count("stator_events_durable_corrupt_total"), 1U);
}

TEST_F(DurableEventsTest, ResetForgetsWhatTheBrokerHas) {
  publish();
  log_.append(store(1));
  end_worker(1);
  config_.reset = true;

  join();
  wait([&] { return count("stator_events_durable_unknown_total") == 1; });

  auto jet_stream = kv_events::JetStream::open(*worker_nats_).value();
  EXPECT_EQ(jet_stream->state(kv_events::durable_stream(record_.key))->messages, 0U);
}

}  // namespace
}  // namespace stator::session
