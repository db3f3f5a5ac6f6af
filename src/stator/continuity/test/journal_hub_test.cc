// SPDX-License-Identifier: Apache-2.0
// Two hubs that keep each other's journals over real connections.
#include "stator/continuity/journal_hub.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stator/continuity/detail/fetch_error.h"
#include "stator/discovery/memory_discovery.h"
#include "stator/net/shard.h"

namespace stator::continuity {
namespace {

bool eventually(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

class JournalHubTest : public testing::Test {
 protected:
  JournalHubTest() { shards_.start(); }
  ~JournalHubTest() override {
    ours_->stop();
    theirs_->stop();
    shards_.stop();
  }

  void start() {
    JournalHubConfig config;
    config.ack_timeout = std::chrono::seconds(60);
    ours_ = JournalHub::create(config, std::nullopt, clock_, metrics_);
    theirs_ = JournalHub::create({}, std::nullopt, clock_, metrics_);
    ASSERT_TRUE(theirs_->start(*discovery_));
    ASSERT_TRUE(ours_->start(*discovery_));
    ASSERT_TRUE(eventually([this] { return ours_->choose_holder(kStream).has_value(); }));
    holder_ = *ours_->choose_holder(kStream);
  }
  /// True when the other hub has taken it.
  bool append(std::string data, JournalStore::Place place) {
    std::optional<bool> taken;
    ours_->append(holder_, {{kStream, place, std::move(data)}}, shards_.shard(0),
                  [&](Result<std::vector<StreamId>>& refused) {
                    finish(taken, refused && refused->empty());
                  });
    return wait(taken);
  }
  /// The bytes that came, or the error's code.
  Result<size_t> fetch() {
    std::optional<Result<size_t>> got;
    ours_->fetch(holder_, kStream, shards_.shard(0), [&](Result<std::vector<std::string>>& parts) {
      if (!parts) {
        return finish(got, Result<size_t>(std::move(parts.error())));
      }
      size_t bytes = 0;
      for (const std::string& part : *parts) {
        bytes += part.size();
      }
      finish(got, Result<size_t>(bytes));
    });
    return wait(got);
  }

 private:
  template <typename Value>
  void finish(std::optional<Value>& to, Value value) {
    to = std::move(value);
    done_ = true;
  }
  template <typename Value>
  Value wait(std::optional<Value>& value) {
    EXPECT_TRUE(eventually([this] { return done_.load(); }));
    done_ = false;
    return *std::move(value);
  }

 protected:
  static constexpr StreamId kStream{.high = 1, .low = 2};
  SystemClock clock_;
  Metrics metrics_;
  net::ShardSet shards_{1, clock_, metrics_};
  std::unique_ptr<discovery::Discovery> discovery_ = discovery::make_memory_discovery(metrics_);
  std::unique_ptr<JournalHub> ours_;
  std::unique_ptr<JournalHub> theirs_;
  JournalHub::HolderId holder_ = 0;
  std::atomic<bool> done_ = false;
};

TEST_F(JournalHubTest, AJournalOfSeveralMebibytesComesBack) {
  start();
  ASSERT_TRUE(append(std::string(100, 'a'), JournalStore::Place::kBegin));
  ASSERT_TRUE(append(std::string(6 << 20, 'b'), JournalStore::Place::kEnd));

  const Result<size_t> bytes = fetch();
  ASSERT_TRUE(bytes) << bytes.error().message();
  EXPECT_EQ(*bytes, 100U + (6U << 20));
}

TEST(FetchError, OnlyWhatMayChangeIsWorthAnotherTry) {
  const auto code = [](int status) {
    return detail::to_fetch_error(net::GrpcOutcome{status, "why"}).code();
  };
  EXPECT_EQ(code(net::kGrpcUnavailable), Code::kUnavailable);
  EXPECT_EQ(code(net::kGrpcDeadlineExceeded), Code::kUnavailable);
  EXPECT_EQ(code(net::kGrpcNotFound), Code::kNotFound);
  EXPECT_EQ(code(net::kGrpcResourceExhausted), Code::kNotFound) << "it stays too long";
}

}  // namespace
}  // namespace stator::continuity
