// SPDX-License-Identifier: Apache-2.0
// The simulated engine through both carriers: the same tokens, blocks and load come out.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "stator/engine/core/engine_service.h"
#include "stator/engine/sim/sim_runner.h"
#include "stator/session/test/worker_harness.h"

namespace stator::session {
namespace {

using test::Carrier;

constexpr uint64_t kRequests = 8;
constexpr uint32_t kMaxTokens = 24;

/// Collects answers, checking that offsets are contiguous.
class Answers final : public SessionEvents {
 public:
  void on_rejected(WorkerId /*worker*/, inference::RequestKey /*key*/, Error error) override {
    ADD_FAILURE() << error.to_string();
  }
  void on_accepted(WorkerId /*worker*/, inference::RequestKey /*key*/) override {}
  void on_step(WorkerId /*worker*/, inference::StepOutput output) override {
    const MutexLock lock(mutex_);
    EXPECT_TRUE(output.failures.empty());
    for (const inference::Delta& delta : output.deltas) {
      std::vector<TokenId>& answer = answers_[delta.key.request.value()];
      EXPECT_EQ(delta.offset, answer.size());
      const auto tokens = output.tokens_of(delta);
      answer.insert(answer.end(), tokens.begin(), tokens.end());
      finished_ += delta.finish == inference::FinishReason::kNone ? 0 : 1;
    }
    changed_.notify_all();
  }
  void on_draining(WorkerId /*worker*/) override {}
  void on_closed(WorkerId /*worker*/, Error error) override { ADD_FAILURE() << error.to_string(); }

  std::map<uint64_t, std::vector<TokenId>> wait_all() {
    MutexLock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&]() STATOR_REQUIRES(mutex_) {
      return finished_ == kRequests;
    }));
    return answers_;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::map<uint64_t, std::vector<TokenId>> answers_ STATOR_GUARDED_BY(mutex_);
  size_t finished_ STATOR_GUARDED_BY(mutex_) = 0;
};

std::unique_ptr<engine::Engine> make_sim_engine(Clock& clock, Metrics& metrics) {
  engine::SimRunnerConfig runner;
  runner.speedup = 0;
  auto made =
      engine::make_engine({}, std::move(engine::make_sim_runner(runner).value()), clock, metrics);
  EXPECT_TRUE(made.has_value()) << made.error().to_string();
  EXPECT_TRUE((*made)->start().has_value());
  return std::move(*made);
}

void submit_all(WorkerSession& session) {
  for (uint64_t request = 1; request <= kRequests; ++request) {
    inference::EngineRequest work = test::make_request(request);
    work.tokens.assign(40, static_cast<TokenId>(request));
    work.stop.max_tokens = kMaxTokens;
    session.submit(std::move(work));
  }
}

std::map<uint64_t, std::vector<TokenId>> run_all(Carrier carrier) {
  SystemClock clock;
  Metrics metrics;
  const auto engine = make_sim_engine(clock, metrics);
  discovery::InstanceRecord record;
  record.key.worker = WorkerId(7);
  record.incarnation = Incarnation(1);
  record.address = "local";
  LocalWorker local(record.key.worker, record.incarnation, *engine, metrics);
  auto server = std::move(WorkerServer::start(record, *engine, {}, clock, metrics).value());
  std::unique_ptr<Connector> connector;
  if (carrier == Carrier::kInProcess) {
    connector = std::make_unique<LocalConnector>(std::vector{&local}, nullptr, metrics);
  } else {
    record.address = server->address();
    connector = std::move(make_grpc_connector({}, metrics).value());
  }
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  Answers answers;
  std::unique_ptr<WorkerSession> session;
  EXPECT_TRUE(shards.shard(0).run_and_wait([&] {
    session = connector->open_session(record, shards.shard(0), answers);
    submit_all(*session);
  }));
  auto result = answers.wait_all();
  EXPECT_TRUE(shards.shard(0).run_and_wait([&] { session.reset(); }));
  shards.stop();
  server.reset();
  local.shutdown();
  engine->stop();
  return result;
}

TEST(SimEngine, GivesTheSameAnswersInProcessAndOverGrpc) {
  const auto direct = run_all(Carrier::kInProcess);
  const auto remote = run_all(Carrier::kGrpc);

  ASSERT_EQ(direct.size(), kRequests);
  for (const auto& [request, tokens] : direct) {
    EXPECT_EQ(tokens.size(), kMaxTokens) << request;
  }
  EXPECT_EQ(direct, remote);
}

}  // namespace
}  // namespace stator::session
