// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/preparation_queue.h"

#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <vector>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

/// A queue on a running shard, with a pool of one thread. Test code runs on the loop by `on_loop`.
class PreparationQueueTest : public CatalogTest, public PreparationListener {
 protected:
  void SetUp() override {
    config_.inline_body_bytes_max = 100;
    shards_.start();
    on_loop([this] {
      queue_ = std::make_unique<PreparationQueue>(
          shards_.shard(0), pool_,
          PrepareEnvironment{.config = config_, .catalog = catalog_, .encoder = encoder_}, *this);
    });
  }
  void TearDown() override {
    release();
    on_loop([this] { queue_->fail_all(Error(Code::kUnavailable, "end of test")); });
    pool_.stop();
    on_loop([this] { queue_.reset(); });
    shards_.stop();
  }

  void on_prepared(net::HttpExchange& exchange, PrepareJob& job) override {
    const auto* error = std::get_if<api::ApiError>(&job.outcome);
    prepared_.emplace_back(&exchange, error == nullptr ? "" : error->message());
    codes_.push_back(error == nullptr ? Code::kInternal : error->code());
  }
  void on_client_left(const PrepareJob&) override { ++left_; }

  void on_loop(net::Task task) { ASSERT_TRUE(shards_.shard(0).run_and_wait(std::move(task))); }
  /// Keeps the pool's thread busy until release().
  void block_pool() {
    std::latch started(1);
    blocked_ = true;
    ASSERT_TRUE(pool_.submit({.run = [this, &started] {
      started.count_down();
      released_.wait();
    }}));
    started.wait();
  }
  void release() {
    if (std::exchange(blocked_, false)) {
      released_.count_down();
    }
  }
  /// Waits until the pool has done everything so far and the loop has heard of it.
  void settle() {
    std::latch done(1);
    ASSERT_TRUE(pool_.submit({.priority = net::ComputePool::Priority::kBackground,
                              .run = [&done] { done.count_down(); }}));
    done.wait();
    on_loop([] {});
  }
  void submit(FakeExchange& exchange, size_t body_bytes) {
    on_loop([&] {
      auto job = std::make_shared<PrepareJob>();
      job->route.kind = TextRequest::kChat;
      job->body = R"({"model":"absent","messages":[{"role":"user","content":"x"}]})";
      job->body.resize(std::max(job->body.size(), body_bytes), ' ');
      queue_->submit(exchange, std::move(job));
    });
  }

  PromptEncoder encoder_{config_, clock_, metrics_, nullptr};
  net::ShardSet shards_{1, clock_, metrics_};
  net::ComputePool pool_{{.threads = 1, .tasks_max = 3}, clock_, metrics_};
  FakeExchange exchanges_[4];  // outlive the queue's interest in them
  std::unique_ptr<PreparationQueue> queue_;
  std::latch released_{1};
  bool blocked_ = false;
  std::vector<std::pair<net::HttpExchange*, std::string>> prepared_;
  std::vector<Code> codes_;
  int left_ = 0;
};

TEST_F(PreparationQueueTest, ShortRequestsAreDoneAtOnceEvenWithABusyPool) {
  block_pool();
  FakeExchange& exchange = exchanges_[0];
  submit(exchange, 0);
  ASSERT_EQ(prepared_.size(), 1U);
  EXPECT_EQ(prepared_[0].first, &exchange);
  EXPECT_EQ(codes_[0], Code::kNotFound);
}

TEST_F(PreparationQueueTest, LongRequestsAreDoneByThePool) {
  block_pool();
  FakeExchange& exchange = exchanges_[0];
  submit(exchange, 1000);
  EXPECT_TRUE(prepared_.empty());
  EXPECT_EQ(queue_->waiting(), 1U);
  EXPECT_NE(exchange.observer, nullptr);
  release();
  settle();
  ASSERT_EQ(prepared_.size(), 1U);
  EXPECT_EQ(codes_[0], Code::kNotFound);
  EXPECT_EQ(exchange.observer, nullptr);
  EXPECT_EQ(queue_->waiting(), 0U);
}

TEST_F(PreparationQueueTest, AClientThatLeavesIsForgotten) {
  block_pool();
  FakeExchange& exchange = exchanges_[0];
  submit(exchange, 1000);
  on_loop([&] { exchange.observer->on_client_gone(net::ClientGone::kDisconnected); });
  EXPECT_EQ(left_, 1);
  EXPECT_EQ(queue_->waiting(), 0U);
  release();
  settle();
  EXPECT_TRUE(prepared_.empty());
}

TEST_F(PreparationQueueTest, WorkOfAClientThatLeftStops) {
  block_pool();
  FakeExchange& exchange = exchanges_[0];
  auto job = std::make_shared<PrepareJob>();
  job->body = std::string(1000, ' ');
  on_loop([&] { queue_->submit(exchange, job); });
  on_loop([&] { exchange.observer->on_client_gone(net::ClientGone::kDisconnected); });
  EXPECT_TRUE(job->cancel.cancelled());
  release();
  settle();
  EXPECT_EQ(std::get<api::ApiError>(job->outcome).code(), Code::kCancelled);
}

TEST_F(PreparationQueueTest, AFullQueueIsAnOverload) {
  block_pool();
  for (FakeExchange& exchange : exchanges_) {
    submit(exchange, 1000);
  }
  ASSERT_EQ(prepared_.size(), 1U);
  EXPECT_EQ(prepared_[0].first, &exchanges_[3]);
  EXPECT_EQ(codes_[0], Code::kOverloaded);
  EXPECT_EQ(exchanges_[3].observer, nullptr);
}

TEST_F(PreparationQueueTest, ShuttingDownAnswersWhatIsStillWithThePool) {
  block_pool();
  submit(exchanges_[0], 1000);
  submit(exchanges_[1], 1000);
  on_loop([this] { queue_->fail_all(Error(Code::kUnavailable, "shutting down")); });
  ASSERT_EQ(prepared_.size(), 2U);
  EXPECT_EQ(codes_[0], Code::kUnavailable);
  release();
  settle();
  EXPECT_EQ(prepared_.size(), 2U);  // what the pool made of them is dropped
}

TEST_F(PreparationQueueTest, ALostMessageIsFoundBySweeping) {
  FakeExchange& exchange = exchanges_[0];
  on_loop([&] {
    // The loop is here, so the pool's message cannot be handled before the sweep.
    auto job = std::make_shared<PrepareJob>();
    job->body = std::string(1000, ' ');
    queue_->submit(exchange, job);
    while (!job->done.load()) {
    }
    queue_->sweep();
    EXPECT_EQ(prepared_.size(), 1U);
  });
  settle();
  EXPECT_EQ(prepared_.size(), 1U);
}

}  // namespace
}  // namespace stator::frontend
