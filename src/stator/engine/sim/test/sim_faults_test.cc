// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/core/metrics.h"
#include "stator/engine/api/engine.h"
#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

using inference::FinishReason;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Says what the test makes it say, on the test's thread.
class PuppetEngine final : public Engine {
 public:
  const EngineInfo& info() const override { return info_; }
  Status start() override { return {}; }
  void stop() override { stopped = true; }
  SessionId open_session(EngineSink& sink) override {
    sink_ = &sink;
    return SessionId(1);
  }
  void close_session(SessionId /*session*/) override {}
  Status submit(SessionId /*session*/, inference::EngineRequest request) override {
    submitted.push_back(request.key);
    return {};
  }
  void cancel(SessionId /*session*/, inference::RequestKey /*key*/) override {}
  LoadReport load() const override { return {}; }
  kv::EventLog& events() override { return events_; }
  void reset_prefix_cache() override {}

  /// One step in which every submitted request gets `tokens` more.
  void step(uint32_t tokens, FinishReason finish = FinishReason::kNone) {
    inference::StepOutput output;
    for (const inference::RequestKey& key : submitted) {
      output.deltas.push_back({.key = key,
                               .offset = said_,
                               .token_begin = static_cast<uint32_t>(output.tokens.size()),
                               .token_count = tokens,
                               .finish = finish});
      for (uint32_t i = 0; i < tokens; ++i) {
        output.tokens.push_back(static_cast<TokenId>(said_ + i));
      }
    }
    said_ += tokens;
    sink_->on_step(std::move(output));
  }

  std::vector<inference::RequestKey> submitted;
  bool stopped = false;

 private:
  EngineInfo info_;
  kv::EventLog events_;
  EngineSink* sink_ = nullptr;
  uint32_t said_ = 0;
};

struct Collected final : EngineSink {
  void on_step(inference::StepOutput output) noexcept override {
    for (const inference::Delta& delta : output.deltas) {
      const auto part = output.tokens_of(delta);
      tokens.insert(tokens.end(), part.begin(), part.end());
      ends += delta.finish != FinishReason::kNone ? 1 : 0;
    }
    for (const inference::Failure& failure : output.failures) {
      failures.push_back(failure.error.code());
    }
  }
  std::vector<TokenId> tokens;
  std::vector<Code> failures;
  int ends = 0;
};

inference::RequestKey key(uint64_t id) {
  return {RequestId(id), Attempt(0)};
}

struct SimFaultsTest : testing::Test {
  void make(const SimFaults& faults) {
    auto owned = std::make_unique<PuppetEngine>();
    puppet = owned.get();
    engine = make_faulty_engine(std::move(owned), faults, [this] { ++deaths; }, metrics);
    session = engine->open_session(sink);
  }
  Status submit(uint64_t id) {
    inference::EngineRequest request;
    request.key = key(id);
    return engine->submit(session, std::move(request));
  }

  Metrics metrics;
  Collected sink;  // outlives the engine
  std::unique_ptr<Engine> engine;
  PuppetEngine* puppet = nullptr;
  SessionId session;
  int deaths = 0;
};

TEST_F(SimFaultsTest, WithoutFaultsNothingChanges) {
  make({.die_after_tokens = 1000});
  ASSERT_TRUE(submit(1));
  puppet->step(2);
  puppet->step(1, FinishReason::kLength);
  EXPECT_THAT(sink.tokens, ElementsAre(0, 1, 2));
  EXPECT_EQ(sink.ends, 1);
}

TEST_F(SimFaultsTest, APartOfTheRequestsIsRefused) {
  make({.refuse_rate = 0.25, .seed = 7});
  int refused = 0;
  for (uint64_t id = 1; id <= 1000; ++id) {
    const Status submitted = submit(id);
    refused += submitted ? 0 : 1;
    if (!submitted) {
      EXPECT_EQ(submitted.error().code(), Code::kOverloaded);
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_LT(refused, 300);
  EXPECT_EQ(puppet->submitted.size(), 1000U - static_cast<unsigned>(refused));
}

TEST_F(SimFaultsTest, AFailureTakesThePlaceOfAToken) {
  make({.fail_rate = 1, .after_tokens = 3});
  ASSERT_TRUE(submit(1));
  puppet->step(2);
  puppet->step(2);
  puppet->step(2, FinishReason::kLength);
  EXPECT_THAT(sink.tokens, ElementsAre(0, 1, 2));
  EXPECT_THAT(sink.failures, ElementsAre(Code::kDisconnected));
  EXPECT_EQ(sink.ends, 0);
}

TEST_F(SimFaultsTest, AnAnswerThatEndsBeforeItsFaultIsWhole) {
  make({.fail_rate = 1, .after_tokens = 3});
  ASSERT_TRUE(submit(1));
  puppet->step(3, FinishReason::kLength);
  EXPECT_EQ(sink.tokens.size(), 3);
  EXPECT_EQ(sink.ends, 1);
  EXPECT_THAT(sink.failures, IsEmpty());
}

TEST_F(SimFaultsTest, OfAHungRequestNothingMoreIsHeard) {
  make({.hang_rate = 1});
  ASSERT_TRUE(submit(1));
  puppet->step(1);
  puppet->step(1, FinishReason::kLength);
  EXPECT_THAT(sink.tokens, IsEmpty());
  EXPECT_THAT(sink.failures, IsEmpty());
  EXPECT_EQ(sink.ends, 0);
}

TEST_F(SimFaultsTest, TheProcessDiesOnceInThePlaceOfAToken) {
  make({.die_after_tokens = 3});
  ASSERT_TRUE(submit(1));
  puppet->step(2);
  EXPECT_EQ(deaths, 0);
  puppet->step(1);
  puppet->step(5);
  EXPECT_EQ(deaths, 1);
}

TEST_F(SimFaultsTest, AFrozenEngineIsThawedByStop) {
  make({.freeze_after_tokens = 1, .freeze_time = std::chrono::hours(1)});
  ASSERT_TRUE(submit(1));
  engine->stop();  // else the step below takes an hour
  puppet->step(1);
  EXPECT_TRUE(puppet->stopped);
  EXPECT_EQ(sink.tokens.size(), 1);
  EXPECT_THAT(metrics.render(), HasSubstr(R"(stator_sim_faults_total{kind="freeze"} 1)"));
}

TEST(SimFaults, PartsOfMoreThanAllAreRefused) {
  const Status valid = validate(SimFaults{.refuse_rate = 0.5, .fail_rate = 0.4, .hang_rate = 0.2});
  ASSERT_FALSE(valid.has_value());
  EXPECT_THAT(valid.error().message(), HasSubstr("sim_fault.hang"));
  EXPECT_TRUE(validate(SimFaults{.fail_rate = 1}).has_value());
}

}  // namespace
}  // namespace stator::engine
