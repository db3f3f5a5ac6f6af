// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/pooling_service.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/engine/sim/sim_pool_runner.h"

namespace stator::engine {
namespace {

/// Keeps what comes and waits for it.
class KeepingSink final : public EngineSink {
 public:
  void on_step(inference::StepOutput output) noexcept override {
    const std::scoped_lock lock(mutex_);
    for (inference::Pooled& pooled : output.pooled) {
      pooled_.push_back(std::move(pooled));
    }
    for (inference::Failure& failure : output.failures) {
      failures_.push_back(std::move(failure));
    }
    changed_.notify_all();
  }
  std::vector<inference::Pooled> wait_for_pooled(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pooled_.size() >= count; });
    return std::move(pooled_);
  }
  std::vector<Code> failure_codes() {
    const std::scoped_lock lock(mutex_);
    std::vector<Code> codes;
    for (const inference::Failure& failure : failures_) {
      codes.push_back(failure.error.code());
    }
    return codes;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<inference::Pooled> pooled_;
  std::vector<inference::Failure> failures_;
};

inference::RequestKey key(uint64_t id) {
  return {RequestId(id), Attempt(0)};
}

inference::EngineRequest ask(uint64_t id, inference::PoolTask task,
                             const std::vector<std::vector<TokenId>>& sequences) {
  inference::EngineRequest request{.key = key(id), .pool = inference::PoolRequest{.task = task}};
  for (const auto& sequence : sequences) {
    request.tokens.insert(request.tokens.end(), sequence.begin(), sequence.end());
    request.pool->lengths.push_back(static_cast<uint32_t>(sequence.size()));
  }
  return request;
}

struct Rig {
  explicit Rig(PoolingConfig config = {}, SimPoolConfig model = {.width = 8}) {
    engine = make_pooling_engine(config, *make_sim_pool_runner(model), clock, metrics);
    session = engine->open_session(sink);
  }
  ~Rig() { engine->stop(); }
  SystemClock clock;
  Metrics metrics;
  KeepingSink sink;
  std::unique_ptr<Engine> engine;
  SessionId session;
};

TEST(PoolingService, GivesOneUnitVectorPerSequence) {
  Rig rig;
  ASSERT_TRUE(rig.engine->start());

  ASSERT_TRUE(
      rig.engine->submit(rig.session, ask(1, inference::PoolTask::kEmbed, {{1, 2, 3}, {4}})));

  const auto got = rig.sink.wait_for_pooled(1);
  ASSERT_EQ(got[0].answer.width, 8U);
  ASSERT_EQ(got[0].answer.values.size(), 16U);
  EXPECT_EQ(got[0].answer.prompt_tokens, 4U);
  for (int row = 0; row < 2; ++row) {
    const auto* first = got[0].answer.values.data() + row * 8;
    EXPECT_NEAR(std::inner_product(first, first + 8, first, 0.0), 1, 1e-5);
  }
}

TEST(PoolingService, APassIsAsLongAsItsBudgetAndTheNumbersDoNotDependOnIt) {
  Rig narrow({.max_num_batched_tokens = 2});
  Rig wide;
  ASSERT_TRUE(narrow.engine->start());
  ASSERT_TRUE(wide.engine->start());
  const auto request = ask(1, inference::PoolTask::kTokenEmbed, {{1, 2, 3}, {4}, {5, 6}, {7}});

  ASSERT_TRUE(narrow.engine->submit(narrow.session, request));
  ASSERT_TRUE(wide.engine->submit(wide.session, request));

  const auto a = narrow.sink.wait_for_pooled(1);
  const auto b = wide.sink.wait_for_pooled(1);
  EXPECT_EQ(a[0].answer, b[0].answer);
  EXPECT_EQ(a[0].answer.rows, (std::vector<uint32_t>{3, 1, 2, 1}));
}

TEST(PoolingService, ScoresAPairByTheTokensItShares) {
  Rig rig;
  ASSERT_TRUE(rig.engine->start());
  inference::EngineRequest request =
      ask(1, inference::PoolTask::kScore, {{1, 2, 9, 1, 2}, {1, 2, 9, 7, 8}});
  request.pool->first_lengths = {2, 2};

  ASSERT_TRUE(rig.engine->submit(rig.session, std::move(request)));

  const std::vector<float> scores = rig.sink.wait_for_pooled(1)[0].answer.values;
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0], 1);
  EXPECT_GT(scores[1], 0);
  EXPECT_LE(scores[1], 0.01F);
}

TEST(PoolingService, RefusesWhatItCannotRun) {
  Rig rig({.max_model_len = 4},
          {.vocab_size = 100, .width = 8, .tasks = {inference::PoolTask::kEmbed}});
  const auto code = [&](inference::EngineRequest request) {
    const Status status = rig.engine->submit(rig.session, std::move(request));
    return status ? std::optional<Code>() : status.error().code();
  };

  EXPECT_EQ(code(ask(1, inference::PoolTask::kClassify, {{1}})), Code::kInvalidArgument);
  EXPECT_EQ(code(ask(2, inference::PoolTask::kEmbed, {{100}})), Code::kInvalidArgument);
  EXPECT_EQ(code(ask(3, inference::PoolTask::kEmbed, {{1, 2, 3, 4, 5}})), Code::kInvalidArgument);
  EXPECT_EQ(code(ask(4, inference::PoolTask::kEmbed, {{}})), Code::kInvalidArgument);
  EXPECT_EQ(code({.key = key(5), .tokens = {1}}), Code::kUnsupported);
  EXPECT_EQ(code(ask(6, inference::PoolTask::kEmbed, {{1, 2, 3, 4}})), std::nullopt);
}

TEST(PoolingService, BeyondItsQueueItIsOverloaded) {
  Rig rig({.waiting_max = 2});  // not started: nothing leaves the queue

  ASSERT_TRUE(rig.engine->submit(rig.session, ask(1, inference::PoolTask::kEmbed, {{1}})));
  ASSERT_TRUE(rig.engine->submit(rig.session, ask(2, inference::PoolTask::kEmbed, {{1}})));
  const Status third = rig.engine->submit(rig.session, ask(3, inference::PoolTask::kEmbed, {{1}}));

  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kOverloaded);
  EXPECT_EQ(rig.engine->load().waiting, 2U);
}

TEST(PoolingService, HigherPriorityComesFirstAndCancelledWorkNever) {
  Rig rig({.max_num_batched_tokens = 1});
  inference::EngineRequest urgent = ask(3, inference::PoolTask::kEmbed, {{3}});
  urgent.priority = 5;
  ASSERT_TRUE(rig.engine->submit(rig.session, ask(1, inference::PoolTask::kEmbed, {{1}})));
  ASSERT_TRUE(rig.engine->submit(rig.session, ask(2, inference::PoolTask::kEmbed, {{2}})));
  ASSERT_TRUE(rig.engine->submit(rig.session, std::move(urgent)));
  rig.engine->cancel(rig.session, key(1));

  ASSERT_TRUE(rig.engine->start());

  const auto first = rig.sink.wait_for_pooled(1);
  EXPECT_EQ(first[0].key, key(3));
  if (first.size() == 1) {
    EXPECT_EQ(rig.sink.wait_for_pooled(1)[0].key, key(2));
  } else {
    EXPECT_EQ(first[1].key, key(2));
  }
}

TEST(PoolingService, StoppingFailsWhatWaits) {
  Rig rig;
  ASSERT_TRUE(rig.engine->submit(rig.session, ask(1, inference::PoolTask::kEmbed, {{1}})));

  rig.engine->stop();

  EXPECT_EQ(rig.sink.failure_codes(), std::vector<Code>{Code::kDraining});
}

/// Computes what is no number.
class BrokenRunner final : public PoolRunner {
 public:
  const inference::PoolAbility& ability() const override { return ability_; }
  uint32_t vocab_size() const override { return 10; }
  uint32_t max_model_len() const override { return 10; }
  uint32_t width(inference::PoolTask /*task*/) const override { return 1; }
  void run(std::span<const PoolSequence> sequences, std::span<std::vector<float>> out) override {
    for (size_t i = 0; i < sequences.size(); ++i) {
      out[i] = {sequences[i].tokens[0] == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F};
    }
  }

 private:
  inference::PoolAbility ability_ = {
      .generates = false, .tasks = {inference::PoolTask::kEmbed}, .width = 1};
};

TEST(PoolingService, ANumberThatIsNoneFailsOnlyItsRequest) {
  SystemClock clock;
  Metrics metrics;
  KeepingSink sink;
  const auto engine = make_pooling_engine({}, std::make_unique<BrokenRunner>(), clock, metrics);
  const SessionId session = engine->open_session(sink);
  ASSERT_TRUE(engine->submit(session, ask(1, inference::PoolTask::kEmbed, {{0}})));
  ASSERT_TRUE(engine->submit(session, ask(2, inference::PoolTask::kEmbed, {{1}})));

  ASSERT_TRUE(engine->start());

  EXPECT_EQ(sink.wait_for_pooled(1)[0].key, key(2));
  engine->stop();
  EXPECT_EQ(sink.failure_codes(), std::vector<Code>{Code::kInternal});
}

}  // namespace
}  // namespace stator::engine
