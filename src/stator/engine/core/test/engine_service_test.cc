// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/engine/api/sleeper.h"
#include "stator/engine/core/forward_pass_log.h"
#include "stator/engine/core/test/scheduler_fixture.h"
#include "stator/kv/event_log.h"
#include "stator/net/thread.h"

namespace stator::engine {
namespace {

using inference::FinishReason;
using testing::ElementsAre;
using testing::HasSubstr;

/// Collects one session's answers; tests wait on it.
class CollectingSink final : public EngineSink {
 public:
  void on_step(inference::StepOutput output) noexcept override {
    const MutexLock lock(mutex_);
    ++steps_;
    for (const inference::Delta& delta : output.deltas) {
      Answer& answer = answers_[delta.key];
      const auto tokens = output.tokens_of(delta);
      answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
      answer.finish = delta.finish;
      answer.deltas += 1;
    }
    for (const inference::Failure& failure : output.failures) {
      answers_[failure.key].failures.push_back(failure.error.code());
    }
    changed_.notify_all();
  }

  /// Waits until `done(answer of key)`. The test's own time limit ends a wait that never succeeds.
  Answer wait_for(inference::RequestKey wanted, const std::function<bool(const Answer&)>& done) {
    MutexLock lock(mutex_);
    while (!done(answers_[wanted])) {
      changed_.wait(lock);
    }
    return answers_[wanted];
  }
  Answer wait_for_end(inference::RequestKey wanted) {
    return wait_for(wanted, [](const Answer& answer) {
      return answer.finish != FinishReason::kNone || !answer.failures.empty();
    });
  }
  Answer answer(inference::RequestKey wanted) {
    const MutexLock lock(mutex_);
    return answers_[wanted];
  }
  uint64_t steps() {
    const MutexLock lock(mutex_);
    return steps_;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<inference::RequestKey, Answer> answers_ STATOR_GUARDED_BY(mutex_);
  uint64_t steps_ STATOR_GUARDED_BY(mutex_) = 0;
};

/// A runner whose steps wait until the test opens the gate.
class GatedRunner final : public ModelRunner {
 public:
  explicit GatedRunner(std::unique_ptr<ModelRunner> inner, Duration extra = Duration::zero())
      : inner_(std::move(inner)), extra_(extra) {}
  uint32_t vocab_size() const override { return inner_->vocab_size(); }
  uint32_t max_model_len() const override { return inner_->max_model_len(); }
  void run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) override {
    {
      MutexLock lock(mutex_);
      ++entered_;
      changed_.notify_all();
      while (!open_) {
        changed_.wait(lock);
      }
    }
    inner_->run(slices, sampled);
  }
  Duration pass_time(const perf::PassShape& /*shape*/) const override { return extra_; }
  void open() {
    const MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_entered() {
    MutexLock lock(mutex_);
    while (entered_ == 0) {
      changed_.wait(lock);
    }
  }

 private:
  const std::unique_ptr<ModelRunner> inner_;
  const Duration extra_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  bool open_ STATOR_GUARDED_BY(mutex_) = false;
  int entered_ STATOR_GUARDED_BY(mutex_) = 0;
};

class EngineServiceTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> make(EngineConfig config = small_config()) {
    return make_with(config, unlimited_runner(config.block_size));
  }
  std::unique_ptr<Engine> make_with(const EngineConfig& config,
                                    std::unique_ptr<ModelRunner> runner) {
    return std::move(*make_engine(config, std::move(runner), clock_, metrics_));
  }
  /// An engine whose first step stands still until gate().open().
  std::unique_ptr<Engine> make_gated(const EngineConfig& config, Duration extra = {}) {
    auto runner = std::make_unique<GatedRunner>(unlimited_runner(config.block_size), extra);
    gate_ = runner.get();
    return make_with(config, std::move(runner));
  }
  GatedRunner& gate() { return *gate_; }

  SystemClock clock_;
  Metrics metrics_;
  CollectingSink sink_;  // outlives each test's engine

 private:
  GatedRunner* gate_ = nullptr;  // owned by the engine
};

TEST_F(EngineServiceTest, AnswersLikeTheSchedulerAlone) {
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink_);
  for (uint64_t id = 1; id <= 20; ++id) {
    ASSERT_TRUE(engine->submit(session, request(id, 10, 6, static_cast<TokenId>(id))));
  }
  for (uint64_t id = 1; id <= 20; ++id) {
    EXPECT_EQ(sink_.wait_for_end(key(id)).tokens,
              run_alone(request(id, 10, 6, static_cast<TokenId>(id))).tokens);
  }
}

TEST_F(EngineServiceTest, DescribesItself) {
  EngineConfig config = small_config();
  config.max_model_len = 0;
  const auto engine = make(config);
  EXPECT_EQ(engine->info().kind, "sim");
  EXPECT_EQ(engine->info().max_model_len, kModelLength);
  EXPECT_EQ(engine->info().vocab_size, kVocabulary);
  EXPECT_EQ(engine->info().total_blocks, 256U);
}

TEST_F(EngineServiceTest, RanksHaveCachesOfTheirOwnAndTellWhoseTheyAre) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  runners.push_back(unlimited_runner(4));
  runners.push_back(unlimited_runner(4));
  const auto engine = std::move(*make_engine(small_config(), std::move(runners), clock_, metrics_));
  EXPECT_EQ(engine->info().dp_size, 2U);
  EXPECT_EQ(engine->load().kv_total_blocks, 2 * small_config().total_blocks);
  const SessionId session = engine->open_session(sink_);
  inference::EngineRequest pinned = request(1, 10, 2);
  pinned.dp_rank = 1;
  ASSERT_TRUE(engine->submit(session, pinned));
  ASSERT_TRUE(engine->submit(session, request(2, 10, 2, 5)));  // the other rank has less to do
  inference::EngineRequest nowhere = request(3, 10, 2);
  nowhere.dp_rank = 2;
  EXPECT_THAT(engine->submit(session, nowhere).error().message(), HasSubstr("dp_rank 2"));
  ASSERT_TRUE(engine->start());
  EXPECT_EQ(sink_.wait_for_end(key(1)).tokens, run_alone(request(1, 10, 2)).tokens);
  EXPECT_EQ(sink_.wait_for_end(key(2)).tokens, run_alone(request(2, 10, 2, 5)).tokens);
  engine->stop();

  std::map<uint32_t, int> stored;
  for (const kv::EventLog::Run& run : engine->events().snapshot().stored) {
    stored[run.dp_rank] += static_cast<int>(run.blocks.size());
  }
  EXPECT_EQ(stored[0], 2);
  EXPECT_EQ(stored[1], 2);
}

TEST_F(EngineServiceTest, NoRankIsAheadOfAnother) {
  auto gated = std::make_unique<GatedRunner>(unlimited_runner(4));
  GatedRunner& slow = *gated;
  std::vector<std::unique_ptr<ModelRunner>> runners;
  runners.push_back(unlimited_runner(4));
  runners.push_back(std::move(gated));
  const auto engine = std::move(*make_engine(small_config(), std::move(runners), clock_, metrics_));
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 10, 3)));  // the first rank's
  ASSERT_TRUE(engine->submit(session, request(2, 10, 3)));
  ASSERT_TRUE(engine->start());
  slow.wait_entered();
  EXPECT_EQ(sink_.steps(), 0U);
  slow.open();
  EXPECT_EQ(sink_.wait_for_end(key(1)).tokens.size(), 3U);
  EXPECT_EQ(sink_.wait_for_end(key(2)).tokens.size(), 3U);
}

TEST_F(EngineServiceTest, ABadConfigIsRefusedByName) {
  EngineConfig config = small_config();
  config.total_blocks = 1;
  const auto engine = make_engine(config, unlimited_runner(4), clock_, metrics_);
  ASSERT_FALSE(engine.has_value());
  EXPECT_THAT(engine.error().message(), HasSubstr("total_blocks"));
}

TEST_F(EngineServiceTest, RefusesWhatItCannotRun) {
  const auto engine = make();
  const SessionId session = engine->open_session(sink_);
  EXPECT_EQ(engine->submit(session, request(1, kModelLength, 1)).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(engine->submit(SessionId(99), request(1, 4, 1)).error().code(), Code::kNotFound);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 1)));
  EXPECT_EQ(engine->submit(session, request(1, 4, 1)).error().code(), Code::kAlreadyExists);
}

TEST_F(EngineServiceTest, TheQueueIsBoundedBeforeAndAfterTheInbox) {
  EngineConfig config = small_config();
  config.waiting_max = 2;
  config.max_num_seqs = 1;
  const auto engine = make_gated(config);
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 1)));
  ASSERT_TRUE(engine->submit(session, request(2, 4, 1)));
  EXPECT_EQ(engine->submit(session, request(3, 4, 1)).error().code(), Code::kOverloaded);
  EXPECT_EQ(engine->load().waiting, 2U);
  ASSERT_TRUE(engine->start());
  gate().wait_entered();  // one runs, one waits
  EXPECT_EQ(engine->load().running, 1U);
  EXPECT_EQ(engine->load().waiting, 1U);
  ASSERT_TRUE(engine->submit(session, request(3, 4, 1)));
  EXPECT_EQ(engine->submit(session, request(4, 4, 1)).error().code(), Code::kOverloaded);
  gate().open();
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(sink_.wait_for_end(key(id)).finish, FinishReason::kLength);
  }
}

TEST_F(EngineServiceTest, AsleepItFinishesWhatItHasForgetsItsCacheAndTakesNothing) {
  const auto engine = make();
  auto* sleeper = dynamic_cast<Sleeper*>(engine.get());
  ASSERT_NE(sleeper, nullptr);
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 40, 50)));
  sleeper->set_asleep(true);
  EXPECT_TRUE(sleeper->asleep());
  EXPECT_EQ(engine->submit(session, request(2, 4, 1)).error().code(), Code::kUnavailable);
  EXPECT_EQ(sink_.wait_for_end(key(1)).tokens.size(), 50U);
  while (engine->load().kv_cached_blocks > 0) {
    std::this_thread::yield();
  }
  sleeper->set_asleep(false);
  ASSERT_TRUE(engine->submit(session, request(3, 40, 5)));
  EXPECT_EQ(sink_.wait_for_end(key(3)).tokens.size(), 5U);
}

TEST_F(EngineServiceTest, CancelEndsARequestSilently) {
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 500)));
  sink_.wait_for(key(1), [](const Answer& answer) { return answer.tokens.size() > 2; });
  engine->cancel(session, key(1));
  engine->cancel(session, key(77));

  ASSERT_TRUE(engine->submit(session, request(2, 4, 1)));
  sink_.wait_for_end(key(2));

  EXPECT_TRUE(sink_.answer(key(1)).failures.empty());
  engine->stop();
  EXPECT_EQ(engine->load().kv_used_blocks, 0U);
  EXPECT_EQ(engine->load().running, 0U);
}

TEST_F(EngineServiceTest, ACancelledKeyCanWaitInTheInboxBesideItsSuccessor) {
  const auto engine = make();
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 3)));
  engine->cancel(session, key(1));
  ASSERT_TRUE(engine->submit(session, request(1, 4, 2)));
  ASSERT_TRUE(engine->start());
  EXPECT_EQ(sink_.wait_for_end(key(1)).tokens.size(), 2U);
}

TEST_F(EngineServiceTest, StopFailsRunningAndWaitingRequestsWithDraining) {
  EngineConfig config = small_config();
  config.max_num_seqs = 1;
  const auto engine = make_gated(config, std::chrono::hours(1));
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 9)));
  ASSERT_TRUE(engine->submit(session, request(2, 4, 9)));
  gate().wait_entered();
  gate().open();  // the step now lasts an hour, unless stop() cuts it short

  engine->stop();
  engine->stop();

  EXPECT_THAT(sink_.answer(key(1)).failures, ElementsAre(Code::kDraining));
  EXPECT_THAT(sink_.answer(key(2)).failures, ElementsAre(Code::kDraining));
  EXPECT_EQ(engine->submit(session, request(3, 4, 1)).error().code(), Code::kDraining);
  EXPECT_EQ(engine->start().error().code(), Code::kDraining);
  EXPECT_EQ(engine->load().kv_used_blocks, 0U);
}

TEST_F(EngineServiceTest, StopBeforeStartFailsWhatWasSubmitted) {
  const auto engine = make();
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 9)));
  engine->stop();
  EXPECT_THAT(sink_.answer(key(1)).failures, ElementsAre(Code::kDraining));
}

TEST_F(EngineServiceTest, StartsOnce) {
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  EXPECT_EQ(engine->start().error().code(), Code::kAlreadyExists);
}

TEST_F(EngineServiceTest, AClosedSessionIsNeverCalledAgain) {
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  const SessionId other = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(other, request(1, 4, 500)));
  for (int round = 0; round < 20; ++round) {
    auto sink = std::make_unique<CollectingSink>();
    const SessionId session = engine->open_session(*sink);
    ASSERT_TRUE(engine->submit(session, request(1, 8, 400, 100)));
    sink->wait_for(key(1), [](const Answer& answer) { return answer.tokens.size() > 3; });
    engine->close_session(session);
    engine->close_session(session);
    sink.reset();  // sanitizers see a late call
    EXPECT_EQ(engine->submit(session, request(2, 4, 1)).error().code(), Code::kNotFound);
  }
  EXPECT_EQ(sink_.wait_for_end(key(1)).tokens, run_alone(request(1, 4, 500)).tokens);
  engine->stop();
  EXPECT_EQ(engine->load().kv_used_blocks, 0U);
}

TEST_F(EngineServiceTest, CloseSessionWaitsForARunningCall) {
  class SlowSink final : public EngineSink {
   public:
    void on_step(inference::StepOutput) noexcept override {
      inside = true;
      inside.notify_all();
      leave.wait(false);
      inside = false;
    }
    std::atomic<bool> inside{false};
    std::atomic<bool> leave{false};
  };
  SlowSink sink;
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink);
  ASSERT_TRUE(engine->submit(session, request(1, 4, 1)));
  sink.inside.wait(false);
  std::atomic<bool> closed{false};
  {
    const net::Thread closer("closer", [&] {
      engine->close_session(session);
      EXPECT_FALSE(sink.inside.load());
      closed = true;
    });
    EXPECT_FALSE(closed.load());
    sink.leave = true;
    sink.leave.notify_all();
  }
  EXPECT_TRUE(closed.load());
}

TEST_F(EngineServiceTest, ManyThreadsSubmitCancelAndClose) {
  EngineConfig config = small_config();
  config.total_blocks = 160;
  const auto engine = make(config);
  ASSERT_TRUE(engine->start());
  {
    std::vector<net::Thread> clients;
    for (int client = 0; client < 4; ++client) {
      clients.emplace_back("client", [&engine, client] {
        CollectingSink sink;
        const SessionId session = engine->open_session(sink);
        for (uint64_t id = 1; id <= 40; ++id) {
          const auto first = static_cast<TokenId>(id * 4 + static_cast<uint64_t>(client));
          ASSERT_TRUE(engine->submit(session, request(id, 12, 20, first)));
          if (id % 5 == 0) {
            engine->cancel(session, key(id));
          } else if (id % 3 == 0) {
            EXPECT_EQ(sink.wait_for_end(key(id)).tokens,
                      run_alone(request(id, 12, 20, first)).tokens);
          }
          (void)engine->load();
        }
        engine->close_session(session);
      });
    }
  }
  engine->stop();
  EXPECT_EQ(engine->load().kv_used_blocks, 0U);
}

TEST_F(EngineServiceTest, PublishesKvEventsAndReset) {
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 10, 2)));
  sink_.wait_for_end(key(1));
  engine->reset_prefix_cache();
  engine->stop();

  const auto read = engine->events().read_from(1, 10);
  const auto& events = std::get<std::vector<kv::KvEvent>>(read);
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(std::get<kv::BlocksStored>(events.front().data).blocks.size(), 2U);
  EXPECT_EQ(events.back().data, kv::KvEventData(kv::AllCleared{}));
}

TEST_F(EngineServiceTest, CountsWhatItDid) {
  const auto engine = make();
  ASSERT_TRUE(engine->start());
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 12, 4)));
  sink_.wait_for_end(key(1));
  ASSERT_TRUE(engine->submit(session, request(2, 12, 4)));
  sink_.wait_for_end(key(2));
  engine->stop();

  const std::string text = metrics_.render();
  EXPECT_THAT(text, HasSubstr("stator_engine_generated_tokens_total{engine=\"engine\"} 8"));
  EXPECT_THAT(text, HasSubstr("stator_engine_finished_requests_total{engine=\"engine\"} 2"));
  EXPECT_THAT(text, HasSubstr("stator_engine_prefix_cache_hit_tokens_total{engine=\"engine\"} 8"));
  EXPECT_THAT(text,
              HasSubstr("stator_engine_prefix_cache_query_tokens_total{engine=\"engine\"} 24"));
  EXPECT_THAT(text, HasSubstr("stator_engine_kv_blocks_total{engine=\"engine\"} 256"));
  EXPECT_THAT(text, HasSubstr("stator_engine_running_requests{engine=\"engine\"} 0"));
  EXPECT_THAT(text, HasSubstr("stator_engine_step_seconds_count{engine=\"engine\"} 8"));
}

TEST_F(EngineServiceTest, AModelledStepTakesItsTime) {
  EngineConfig config = small_config();
  const auto engine = make_gated(config, std::chrono::milliseconds(5));
  ASSERT_TRUE(engine->start());
  gate().open();
  const SessionId session = engine->open_session(sink_);
  const TimePoint begin = clock_.now();
  ASSERT_TRUE(engine->submit(session, request(1, 4, 4)));
  sink_.wait_for_end(key(1));
  EXPECT_GE(clock_.now() - begin, std::chrono::milliseconds(20));
  EXPECT_EQ(sink_.steps(), 4U);
}

/// Of an engine that is busy with what it was given, until each rank in `idle` says it is done.
std::map<uint32_t, std::vector<ForwardPass>> passes_until_idle(ForwardPassLog& log,
                                                               std::set<uint32_t> idle) {
  std::map<uint32_t, std::vector<ForwardPass>> passes;
  while (!idle.empty()) {
    for (const ForwardPass& pass : log.take(std::chrono::seconds(1))) {
      passes[pass.dp_rank].push_back(pass);
      if (pass.scheduled == PassWork()) {
        idle.erase(pass.dp_rank);
      }
    }
  }
  return passes;
}

TEST_F(EngineServiceTest, RanksTellOfEachPassAndWhenTheyAreIdle) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  runners.push_back(unlimited_runner(4));
  runners.push_back(unlimited_runner(4));
  const auto engine = std::move(*make_engine(small_config(), std::move(runners), clock_, metrics_));
  ForwardPassLog& log = *engine->forward_passes();
  log.start();
  const SessionId session = engine->open_session(sink_);
  inference::EngineRequest pinned = request(1, 10, 3);
  pinned.dp_rank = 1;
  ASSERT_TRUE(engine->submit(session, pinned));
  ASSERT_TRUE(engine->start());
  auto passes = passes_until_idle(log, {1});

  ASSERT_EQ(passes[1].size(), 4U);
  EXPECT_EQ(passes.count(0), 0U);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(passes[1][i].counter, i + 1);
  }
  EXPECT_EQ(passes[1][0].scheduled, (PassWork{.prefill_requests = 1, .prefill_tokens = 10}));
  EXPECT_EQ(passes[1][2].scheduled, (PassWork{.decode_requests = 1, .decode_kv_tokens = 12}));
  EXPECT_GT(passes[1][2].wall_seconds, 0);
  EXPECT_EQ(passes[1][3], (ForwardPass{.dp_rank = 1, .counter = 4}));

  ASSERT_TRUE(engine->submit(session, request(2, 10, 1)));  // goes to the first rank
  EXPECT_EQ(passes_until_idle(log, {0})[0].size(), 2U);
}

TEST_F(EngineServiceTest, ACancelledRequestLeavesAnIdleEngineThatSaysSo) {
  const auto engine = make_gated(small_config());
  engine->forward_passes()->start();
  const SessionId session = engine->open_session(sink_);
  ASSERT_TRUE(engine->submit(session, request(1, 10, 400)));
  ASSERT_TRUE(engine->start());
  gate().wait_entered();
  engine->cancel(session, key(1));
  gate().open();
  EXPECT_EQ(passes_until_idle(*engine->forward_passes(), {0})[0].size(), 2U);
}

TEST(ForwardPassLog, KeepsTheNewestAndCountsTheRest) {
  ForwardPassLog log;
  for (uint64_t i = 1; i <= ForwardPassLog::kRecordsMax + 3; ++i) {
    log.append({.counter = i});
  }
  const auto passes = log.take(Duration::zero());
  ASSERT_EQ(passes.size(), ForwardPassLog::kRecordsMax);
  EXPECT_EQ(passes.front().counter, 4U);
  EXPECT_EQ(log.take_overflow(), 3U);
  EXPECT_EQ(log.take_overflow(), 0U);
  EXPECT_THAT(log.take(Duration::zero()), testing::IsEmpty());
}

}  // namespace
}  // namespace stator::engine
