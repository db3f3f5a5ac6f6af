// SPDX-License-Identifier: Apache-2.0
// With a real nats-server.
#include "stator/kv_events/nats_connection.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <set>
#include <string>

#include "stator/core/mutex.h"
#include "stator/kv_events/test/nats_server.h"

namespace stator::kv_events {
namespace {

using namespace std::chrono_literals;

class Recorder final : public NatsListener {
 public:
  void on_message(std::string_view subject, std::string_view payload,
                  std::string_view reply) override {
    const MutexLock lock(mutex_);
    seen_.insert(std::string(subject) + "|" + std::string(payload) + "|" + std::string(reply));
    changed_.notify_all();
  }
  bool sees(const std::string& message) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, 60s,
                             [&]() STATOR_REQUIRES(mutex_) { return seen_.contains(message); });
  }
  bool saw(const std::string& message) {
    const MutexLock lock(mutex_);
    return seen_.contains(message);
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::set<std::string> seen_ STATOR_GUARDED_BY(mutex_);
};

#define NEED_SERVER()                                       \
  if (test::NatsServer::binary().empty()) {                 \
    FAIL() << "nats-server is not installed: see setup.sh"; \
  }

TEST(NatsConnection, MessagesArriveWithSubjectAndReply) {
  NEED_SERVER();
  test::NatsServer server;
  Metrics metrics;
  auto nats = NatsConnection::open({.url = server.url()}, metrics).value();
  Recorder recorder;
  auto subscription = nats->subscribe("a.*", recorder).value();
  ASSERT_TRUE(nats->flush().has_value());

  ASSERT_TRUE(nats->publish("a.b", std::string("x\0y", 3), "to.me").has_value());

  EXPECT_TRUE(recorder.sees(std::string("a.b|x\0y|to.me", 13)));
  EXPECT_NE(nats->make_inbox(), nats->make_inbox());
  const Status large = nats->publish("a.b", std::string(nats->payload_bytes_max() + 1, 'x'));
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code(), Code::kTooLarge);
}

TEST(NatsConnection, AnEndedSubscriptionHearsNothing) {
  NEED_SERVER();
  test::NatsServer server;
  Metrics metrics;
  auto nats = NatsConnection::open({.url = server.url()}, metrics).value();
  Recorder ended;
  Recorder other;
  auto subscription = nats->subscribe("a", ended).value();
  auto second = nats->subscribe("a", other).value();
  subscription.reset();

  ASSERT_TRUE(nats->publish("a", "x").has_value());

  EXPECT_TRUE(other.sees("a|x|"));
  EXPECT_FALSE(ended.saw("a|x|"));
}

TEST(NatsConnection, AServerThatIsKilledAndComesBackIsUsedAgain) {
  NEED_SERVER();
  test::NatsServer server;
  Metrics metrics;
  auto nats = NatsConnection::open({.url = server.url()}, metrics).value();
  Recorder recorder;
  auto subscription = nats->subscribe("a", recorder).value();
  server.kill();
  while (nats->connected()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(nats->publish("a", "lost").error().code(), Code::kUnavailable);

  server.restart();
  while (!nats->publish("a", "kept").has_value() || !nats->flush().has_value()) {
    std::this_thread::yield();
  }

  EXPECT_TRUE(recorder.sees("a|kept|"));
  EXPECT_FALSE(recorder.saw("a|lost|"));
}

TEST(NatsConnection, AServerMayComeLater) {
  NEED_SERVER();
  test::NatsServer server;
  server.kill();
  Metrics metrics;
  auto opened = NatsConnection::open({.url = server.url()}, metrics);
  ASSERT_TRUE(opened.has_value());
  EXPECT_FALSE((*opened)->connected());
  Recorder recorder;
  auto subscription = (*opened)->subscribe("a", recorder).value();

  server.restart();
  while (!(*opened)->publish("a", "x").has_value()) {
    std::this_thread::yield();
  }

  EXPECT_TRUE(recorder.sees("a|x|"));
}

TEST(NatsConnection, AUrlThatIsNoneIsRefusedWithoutShowingItsPassword) {
  Metrics metrics;
  const auto refused = NatsConnection::open({.url = "nats://me:secret@host:no-port"}, metrics);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.error().message().find("secret"), std::string::npos);
  EXPECT_NE(refused.error().message().find("host:no-port"), std::string::npos);
}

}  // namespace
}  // namespace stator::kv_events
