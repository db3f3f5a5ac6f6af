// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/lossy_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace stator::kv_events {
namespace {

using testing::ElementsAre;

/// Remembers what it was given.
class Recorder final : public NatsConnection {
 public:
  bool connected() const override { return up; }
  size_t payload_bytes_max() const override { return 1 << 20; }
  Status publish(std::string_view subject, std::string_view payload, std::string_view) override {
    if (!up) {
      return Error(Code::kUnavailable, "no broker");
    }
    got.push_back(std::string(subject) + "=" + std::string(payload));
    return {};
  }
  Status flush() override { return {}; }
  Result<std::unique_ptr<Subscription>> subscribe(const std::string&, NatsListener&) override {
    return Error(Code::kUnsupported, "nobody asks");
  }
  std::string make_inbox() override { return "_INBOX.1"; }
  void* handle() override { return nullptr; }

  bool up = true;
  std::vector<std::string> got;
};

class LossyConnectionTest : public testing::Test {
 protected:
  std::vector<std::string> publish(const LinkFaults& faults, const std::string& subject,
                                   int count) {
    const auto lossy = make_lossy_connection(nats_, faults, metrics_);
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(lossy->publish(subject, std::to_string(i), {}));
    }
    return std::move(nats_.got);
  }

  Metrics metrics_;
  Recorder nats_;
};

TEST_F(LossyConnectionTest, LosesAllOrNothing) {
  EXPECT_THAT(publish({.lost = 1}, "kv", 3), ElementsAre());
  EXPECT_THAT(publish({}, "kv", 3), ElementsAre("kv=0", "kv=1", "kv=2"));
}

TEST_F(LossyConnectionTest, Repeats) {
  EXPECT_THAT(publish({.repeated = 1}, "kv", 2), ElementsAre("kv=0", "kv=0", "kv=1", "kv=1"));
}

TEST_F(LossyConnectionTest, SwapsNeighbours) {
  EXPECT_THAT(publish({.reordered = 1}, "kv", 5), ElementsAre("kv=1", "kv=0", "kv=3", "kv=2"));
}

TEST_F(LossyConnectionTest, AnswersArrive) {
  EXPECT_THAT(publish({.lost = 1}, "_INBOX.7", 2), ElementsAre("_INBOX.7=0", "_INBOX.7=1"));
}

TEST_F(LossyConnectionTest, StrikesTheAskedPartOfTheMessages) {
  constexpr int kCount = 10'000;
  std::map<std::string, int> times;
  for (const std::string& message :
       publish({.lost = 0.2, .repeated = 0.1, .reordered = 0.1, .seed = 3}, "kv", kCount)) {
    ++times[message];
  }
  const auto twice = std::ranges::count_if(times, [](const auto& one) { return one.second == 2; });
  EXPECT_NEAR(static_cast<double>(times.size()), 0.8 * kCount, 0.02 * kCount);
  EXPECT_NEAR(static_cast<double>(twice), 0.1 * kCount, 0.02 * kCount);
}

TEST_F(LossyConnectionTest, ABrokerThatIsAwayIsSaidToBe) {
  nats_.up = false;
  const auto lossy = make_lossy_connection(nats_, {.repeated = 1}, metrics_);
  EXPECT_EQ(lossy->publish("kv", "0", {}).error().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace stator::kv_events
