// SPDX-License-Identifier: Apache-2.0
// With a publisher in a process of its own; nothing here is simulated but the engine's content.
#include "stator/kv_events/zmq_sources.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <string>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/engine_event_feed.h"
#include "stator/kv_events/msgpack_writer.h"
#include "stator/kv_events/test/free_port.h"
#include "stator/kv_events/test/publisher_process.h"

namespace stator::kv_events {
namespace {

using namespace std::chrono_literals;
using test::PublisherProcess;
using Payloads = std::vector<std::string>;

/// Remembers what is valid: a reset empties it.
class Recorder final : public EngineBatchListener {
 public:
  void on_batch(uint32_t /*rank*/, std::string_view payload) override {
    const MutexLock lock(mutex_);
    valid_.emplace_back(payload);
    changed_.notify_all();
  }
  void on_reset(uint32_t /*rank*/) override {
    const MutexLock lock(mutex_);
    ++resets_;
    valid_.clear();
    changed_.notify_all();
  }
  testing::AssertionResult becomes(const Payloads& wanted) {
    MutexLock lock(mutex_);
    const bool reached =
        changed_.wait_for(lock, 60s, [&]() STATOR_REQUIRES(mutex_) { return valid_ == wanted; });
    return reached ? testing::AssertionSuccess()
                   : testing::AssertionFailure() << valid_.size() << " payloads, last "
                                                 << (valid_.empty() ? "none" : valid_.back());
  }
  size_t count() {
    const MutexLock lock(mutex_);
    return valid_.size();
  }
  int resets() {
    const MutexLock lock(mutex_);
    return resets_;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  Payloads valid_ STATOR_GUARDED_BY(mutex_);
  int resets_ STATOR_GUARDED_BY(mutex_) = 0;
};

class ZmqSourcesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto sources = ZmqSources::start(clock_, metrics_);
    ASSERT_TRUE(sources.has_value());
    sources_ = std::move(*sources);
  }
  std::unique_ptr<ZmqSources::Subscription> follow(const PublisherProcess& publisher,
                                                   EngineBatchListener& listener) {
    auto subscription = sources_->subscribe({.endpoint = publisher.endpoint(),
                                             .replay_endpoint = publisher.replay_endpoint(),
                                             .topic = "kv",
                                             .replay_timeout = 5s,
                                             .quiet_check = 100ms},
                                            listener);
    EXPECT_TRUE(subscription.has_value());
    return std::move(*subscription);
  }

  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<ZmqSources> sources_;
};

TEST_F(ZmqSourcesTest, HistoryIsReplayedAndLiveMessagesFollow) {
  PublisherProcess publisher;
  publisher.publish("a0");
  publisher.publish("a1");
  Recorder recorder;
  const auto subscription = follow(publisher, recorder);
  ASSERT_TRUE(recorder.becomes({"a0", "a1"}));

  publisher.publish("a2");

  EXPECT_TRUE(recorder.becomes({"a0", "a1", "a2"}));
  EXPECT_EQ(recorder.resets(), 0);
}

TEST_F(ZmqSourcesTest, LostMessagesAreFetched) {
  PublisherProcess publisher;
  publisher.publish("a0");
  Recorder recorder;
  const auto subscription = follow(publisher, recorder);
  ASSERT_TRUE(recorder.becomes({"a0"}));

  publisher.publish("a1");
  publisher.lose("a2");
  publisher.lose("a3");
  publisher.publish("a4");

  EXPECT_TRUE(recorder.becomes({"a0", "a1", "a2", "a3", "a4"}));
  EXPECT_EQ(recorder.resets(), 0);
}

TEST_F(ZmqSourcesTest, FramesThatNoEngineSendsAreCountedAndPassedOver) {
  PublisherProcess publisher;
  publisher.publish("a0");
  Recorder recorder;
  const auto subscription = follow(publisher, recorder);
  ASSERT_TRUE(recorder.becomes({"a0"}));
  const Counter messages = metrics_.counter("stator_events_zmq_messages_total", "");
  const Counter malformed = metrics_.counter("stator_events_zmq_malformed_total", "");
  while (malformed.value() == 0) {  // until the subscription stands
    publisher.publish_garbage();
  }

  publisher.publish("a1");

  EXPECT_TRUE(recorder.becomes({"a0", "a1"}));
  EXPECT_GE(messages.value(), 2U);
}

TEST_F(ZmqSourcesTest, ALostMessageWithNothingAfterItIsFetched) {
  PublisherProcess publisher;
  publisher.publish("a0");
  Recorder recorder;
  const auto subscription = follow(publisher, recorder);
  ASSERT_TRUE(recorder.becomes({"a0"}));

  publisher.lose("a1");

  EXPECT_TRUE(recorder.becomes({"a0", "a1"}));
}

TEST_F(ZmqSourcesTest, WhatNobodyRemembersVoidsHistory) {
  PublisherProcess publisher;
  publisher.publish("a0");
  Recorder recorder;
  const auto subscription = follow(publisher, recorder);
  ASSERT_TRUE(recorder.becomes({"a0"}));

  publisher.lose_and_forget("a1");
  publisher.publish("a2");

  EXPECT_TRUE(recorder.becomes({"a2"}));
  EXPECT_EQ(recorder.resets(), 1);
}

TEST_F(ZmqSourcesTest, AKilledEngineThatComesBackIsAnotherOne) {
  const PublisherProcess::Ports ports{.live = test::free_port(), .replay = test::free_port()};
  Recorder recorder;
  std::unique_ptr<ZmqSources::Subscription> subscription;
  {
    PublisherProcess first(ports);
    first.publish("a0");
    first.publish("a1");
    subscription = follow(first, recorder);
    ASSERT_TRUE(recorder.becomes({"a0", "a1"}));
    first.kill();
  }

  PublisherProcess second(ports);
  // Further than the first one got, so that its numbers alone would look like progress.
  for (const char* payload : {"b0", "b1", "b2"}) {
    second.publish(payload);
  }

  EXPECT_TRUE(recorder.becomes({"b0", "b1", "b2"}));
  EXPECT_EQ(recorder.resets(), 1);
}

TEST_F(ZmqSourcesTest, AReplayEndpointThatNeverAnswersIsGivenUp) {
  PublisherProcess publisher;
  PublisherProcess frozen;
  frozen.freeze();
  Recorder recorder;
  auto subscription = sources_->subscribe({.endpoint = publisher.endpoint(),
                                           .replay_endpoint = frozen.replay_endpoint(),
                                           .topic = "",
                                           .replay_timeout = 20ms,
                                           .replay_attempts = 2},
                                          recorder);
  ASSERT_TRUE(subscription.has_value());

  // Nothing can be asked for, so it is said until the subscription stands and the replay is given
  // up.
  const Counter failures = metrics_.counter("stator_events_zmq_replay_failures_total", "");
  while (recorder.count() == 0) {
    publisher.publish("again");
  }

  EXPECT_EQ(failures.value(), 1U);
}

TEST_F(ZmqSourcesTest, EndpointsOfRanksAndBadOnes) {
  EXPECT_EQ(*rank_endpoint("tcp://h:5557", 0), "tcp://h:5557");
  EXPECT_EQ(*rank_endpoint("tcp://h:5557", 3), "tcp://h:5560");
  EXPECT_EQ(*rank_endpoint("inproc://cache", 1), "inproc://cache_dp1");
  EXPECT_FALSE(rank_endpoint("tcp://h:65535", 1).has_value());
  EXPECT_FALSE(rank_endpoint("tcp://h:0", 1).has_value());
  EXPECT_FALSE(rank_endpoint("tcp://h:x", 1).has_value());

  Recorder recorder;
  const auto bad = sources_->subscribe({.endpoint = "carrier-pigeon://h"}, recorder);
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code(), Code::kInvalidArgument);
  EXPECT_NE(bad.error().message().find("carrier-pigeon://h"), std::string::npos);
}

std::string store_batch(std::initializer_list<uint64_t> hashes) {
  // A time of 2001.
  MsgpackWriter out;
  out.array(3).number(1e9).array(1).array(5).text("BlockStored");
  out.array(static_cast<uint32_t>(hashes.size()));
  for (const uint64_t hash : hashes) {
    out.integer(hash);
  }
  out.nil().array(static_cast<uint32_t>(2 * hashes.size()));
  for (const uint64_t hash : hashes) {
    out.integer(hash).integer(hash + 1);
  }
  return out.integer(2).nil().take();
}

TEST_F(ZmqSourcesTest, AnEnginesEventsReachTheLog) {
  PublisherProcess publisher;
  kv::EventLog log;
  EngineEventFeed feed({.block_size = 2}, log, clock_, metrics_);
  publisher.publish(store_batch({1, 2, 3}));
  const auto subscription = follow(publisher, feed);
  class Waiter final : public kv::EventLogListener {
   public:
    explicit Waiter(kv::EventLog& watched) : log_(watched) {}
    void on_events_available() noexcept override {
      const MutexLock lock(mutex_);
      changed_.notify_all();
    }
    bool wait_for(uint64_t id) {
      MutexLock lock(mutex_);
      return changed_.wait_for(lock, 60s, [&] { return log_.last_id() >= id; });
    }

   private:
    kv::EventLog& log_;
    Mutex mutex_;
    std::condition_variable_any changed_;
  } waiter(log);
  ASSERT_TRUE(log.subscribe(0, &waiter).has_value());
  ASSERT_TRUE(waiter.wait_for(1));
  EXPECT_EQ(log.snapshot().stored.at(0).blocks.size(), 3U);

  publisher.publish("no MessagePack \xc1");

  ASSERT_TRUE(waiter.wait_for(2));
  EXPECT_TRUE(log.snapshot().stored.empty());  // in doubt, nothing is held
  EXPECT_EQ(feed.normalizer().stats().held_blocks, 0U);
  // The one that could be read, and it was old.
  const std::string text = metrics_.render();
  EXPECT_NE(text.find("stator_events_engine_lag_seconds_count 1\n"), std::string::npos);
  EXPECT_NE(text.find("stator_events_engine_lag_seconds_bucket{le=\"100\"} 0\n"),
            std::string::npos);
  log.unsubscribe(&waiter);
}

}  // namespace
}  // namespace stator::kv_events
