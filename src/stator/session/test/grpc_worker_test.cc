// SPDX-License-Identifier: Apache-2.0
// What only exists over gRPC: refusals, slow clients, the unary calls, wrong messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <utility>

#include "stator/net/grpc_status.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/test/blocking_client.h"
#include "stator/session/test/worker_harness.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;
using test::Carrier;
using test::key;
using test::make_request;

class GrpcWorkerTest : public testing::Test {
 protected:
  /// The status with which the worker ends a session that begins with these messages.
  int end_of_session(const std::vector<pb::ClientMessage>& messages) {
    std::vector<std::string> bytes;
    for (const pb::ClientMessage& message : messages) {
      bytes.push_back(message.SerializeAsString());
    }
    const test::BlockingClient client(harness_.server().address(), "Session", bytes,
                                      harness_.shard(), test::BlockingClient::HalfClose::kNo);
    return client.outcome().status;
  }
  /// The answer to a call with one empty request.
  template <typename Response>
  Response ask(const std::string& method) {
    const test::BlockingClient client(harness_.server().address(), method, {""}, harness_.shard());
    EXPECT_TRUE(client.outcome().ok()) << client.outcome().message;
    Response response;
    EXPECT_EQ(client.answers().size(), 1U);
    EXPECT_TRUE(client.answers().empty() || response.ParseFromString(client.answers()[0]));
    return response;
  }
  static pb::ClientMessage hello() {
    pb::ClientMessage message;
    message.mutable_hello()->set_protocol(1);
    return message;
  }
  uint64_t rejected_messages() {
    return harness_.metrics().counter("stator_runtime_server_rejected_messages_total", "").value();
  }

  test::SessionRecorder events_;
  test::WorkerHarness harness_{Carrier::kGrpc};
};

TEST_F(GrpcWorkerTest, RefusesASessionMeantForAnotherLife) {
  harness_.record().incarnation = Incarnation(99);
  auto session = harness_.open(events_);

  EXPECT_TRUE(events_.wait_for("closed unavailable"));

  harness_.drop(std::move(session));
}

TEST_F(GrpcWorkerTest, AWorkerThatIsNotThereClosesTheSession) {
  harness_.stop_worker();
  auto session = harness_.open(events_);
  harness_.on_loop([&] { session->submit(make_request(1)); });

  ASSERT_TRUE(events_.wait_for("closed unavailable"));
  EXPECT_THAT(events_.lines(), testing::ElementsAre("closed unavailable"));

  harness_.drop(std::move(session));
}

TEST_F(GrpcWorkerTest, RefusesARequestBeyondTheProtocolsSize) {
  auto session = harness_.open(events_);
  inference::EngineRequest huge = make_request(1);
  huge.tokens.assign(5'000'000, 1);
  harness_.on_loop([&] { session->submit(std::move(huge)); });

  EXPECT_TRUE(events_.wait_for("rejected 1 too_large"));

  harness_.drop(std::move(session));
}

TEST_F(GrpcWorkerTest, AnInvalidRequestIsRejectedAndCounted) {
  pb::ClientMessage submit;
  submit.mutable_submit()->set_request(5);
  pb::ClientMessage unknown;

  EXPECT_EQ(end_of_session({hello(), submit, unknown}), net::kGrpcUnimplemented)
      << "ended by the unknown kind";
  EXPECT_EQ(rejected_messages(), 2U);
}

TEST_F(GrpcWorkerTest, EndsSessionsThatBreakTheProtocol) {
  pb::ClientMessage cancel;
  cancel.mutable_cancel()->set_request(1);
  EXPECT_EQ(end_of_session({cancel}), net::kGrpcInvalidArgument) << "not greeted";
  EXPECT_EQ(end_of_session({hello(), hello()}), net::kGrpcInvalidArgument) << "greeted twice";
  EXPECT_NE(end_of_session({hello(), cancel}), net::kGrpcOk) << "unknown cancel reason";
  pb::ClientMessage future = hello();
  future.mutable_hello()->set_protocol(2);
  EXPECT_EQ(end_of_session({future}), net::kGrpcUnimplemented);
  EXPECT_TRUE(harness_.engine().wait_sessions(0));
}

TEST_F(GrpcWorkerTest, DescribesItselfAndItsHealth) {
  const auto description = ask<pb::DescribeResponse>("Describe");
  EXPECT_EQ(description.worker_id(), 7U);
  EXPECT_EQ(description.incarnation(), 100U);
  EXPECT_EQ(discovery::parse_instance_record(description.record_json())->model.name, "demo");

  harness_.server().drain();
  const auto health = ask<pb::HealthResponse>("Health");
  EXPECT_EQ(health.state(), pb::WORKER_STATE_DRAINING);
  EXPECT_EQ(health.sessions(), 0U);
}

TEST_F(GrpcWorkerTest, FlushCacheClearsTheEnginesCache) {
  ask<pb::FlushCacheResponse>("FlushCache");
  EXPECT_EQ(harness_.engine().events().last_id(), 1U);
}

TEST_F(GrpcWorkerTest, EndsARequestAtItsDeadlineByItself) {
  auto session = harness_.open(events_);
  inference::EngineRequest request = make_request(1);
  request.deadline_ms = 1;
  harness_.on_loop([&] { session->submit(std::move(request)); });

  EXPECT_TRUE(events_.wait_for("failed 1 deadline"));
  EXPECT_TRUE(harness_.engine().wait_cancelled(1));

  harness_.drop(std::move(session));
}

TEST_F(GrpcWorkerTest, APortInUseIsAnErrorThatNamesIt) {
  Metrics metrics;
  const SystemClock clock;
  test::FakeEngine engine;
  WorkerServerOptions options;
  options.port = harness_.server().port();
  const auto second = WorkerServer::start(harness_.record(), engine, options, clock, metrics);

  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kIo);
  EXPECT_THAT(second.error().message(), testing::HasSubstr(harness_.server().address()));
}

TEST_F(GrpcWorkerTest, RefusesSessionsBeyondItsBound) {
  WorkerServerOptions options;
  options.sessions_max = 1;
  harness_.start_server(options);
  auto first = harness_.open(events_);
  ASSERT_TRUE(harness_.engine().wait_sessions(1));

  EXPECT_EQ(end_of_session({hello()}), net::kGrpcResourceExhausted);

  harness_.drop(std::move(first));
}

TEST_F(GrpcWorkerTest, AMissingTlsFileIsAnErrorThatNamesIt) {
  GrpcOptions options;
  options.tls =
      net::TlsFiles{"/nonexistent/cert.pem", "/nonexistent/key.pem", "/nonexistent/ca.pem"};
  const auto connector = make_grpc_connector(options, harness_.metrics());
  ASSERT_FALSE(connector.has_value());
  EXPECT_EQ(connector.error().code(), Code::kIo);
  EXPECT_THAT(connector.error().message(), testing::HasSubstr("/nonexistent/cert.pem"));

  test::FakeEngine engine;
  const SystemClock clock;
  WorkerServerOptions server;
  server.tls = options.tls;
  const auto worker =
      WorkerServer::start(harness_.record(), engine, server, clock, harness_.metrics());
  ASSERT_FALSE(worker.has_value());
  EXPECT_EQ(worker.error().code(), Code::kIo);
  EXPECT_THAT(worker.error().message(), testing::HasSubstr("/nonexistent/cert.pem"));
}

TEST_F(GrpcWorkerTest, AShardMayGoRightAfterItsSessions) {
  SystemClock clock;
  for (int round = 0; round < 20; ++round) {
    net::ShardSet shards(1, clock, harness_.metrics());
    shards.start();
    ASSERT_TRUE(shards.shard(0).run_and_wait([&] {
      auto session = harness_.connector().open_session(harness_.record(), shards.shard(0), events_);
      session->submit(make_request(1));
    }));
    shards.stop();
  }
  EXPECT_TRUE(harness_.engine().wait_sessions(0));
}

TEST_F(GrpcWorkerTest, TheLastStreamOfAProcessMayEndAfterItsSession) {
  harness_.stop_worker();
  for (int round = 0; round < 20; ++round) {
    harness_.on_loop([&] {
      auto session =
          harness_.connector().open_session(harness_.record(), harness_.shard(), events_);
      session->submit(make_request(1));
    });
  }
  EXPECT_THAT(events_.lines(), testing::IsEmpty());
}

/// A frontend whose loop stands still: its session must cost the worker a bounded amount, and the
/// engine and other sessions nothing.
TEST(GrpcSlowSession, IsCancelledBeyondItsBytesAndOthersGoOn) {
  WorkerServerOptions server;
  server.session_queue_bytes_max = size_t{1024} * 1024;
  test::WorkerHarness harness(Carrier::kGrpc, server);
  SystemClock clock;
  net::ShardSet other_shards(1, clock, harness.metrics());
  other_shards.start();
  test::SessionRecorder slow_events;
  test::SessionRecorder quick_events;
  auto slow = harness.open(slow_events);
  std::unique_ptr<WorkerSession> quick;
  ASSERT_TRUE(other_shards.shard(0).run_and_wait([&] {
    quick = harness.connector().open_session(harness.record(), other_shards.shard(0), quick_events);
    quick->submit(make_request(2));
  }));
  harness.on_loop([&] { slow->submit(make_request(1)); });
  ASSERT_TRUE(slow_events.wait_for("accepted 1"));
  ASSERT_TRUE(quick_events.wait_for("accepted 2"));

  std::latch blocked(1);
  std::latch release(1);
  ASSERT_TRUE(harness.shard().post([&] {
    blocked.count_down();
    release.wait();
  }));
  blocked.wait();
  uint32_t offset = 0;
  constexpr uint32_t kTokensPerStep = 64 * 1024;
  constexpr uint32_t kStepsMax = 1000;  // 256 MB: far beyond what sockets and queues hold
  for (uint32_t step = 0; step < kStepsMax && harness.server().in_flight() == 2; ++step) {
    harness.engine().emit(key(1), std::vector<TokenId>(kTokensPerStep, 7), offset);
    offset += kTokensPerStep;
  }
  EXPECT_TRUE(harness.engine().wait_cancelled(1));
  harness.engine().emit(key(2), {5}, 0, inference::FinishReason::kStop);
  EXPECT_TRUE(quick_events.wait_for("delta 2 @0 5 end"));
  release.count_down();

  EXPECT_TRUE(slow_events.wait_for("failed 1 overloaded"));
  EXPECT_EQ(
      harness.metrics().counter("stator_runtime_server_slow_session_cancels_total", "").value(),
      1U);
  ASSERT_TRUE(other_shards.shard(0).run_and_wait([&] { quick.reset(); }));
  harness.drop(std::move(slow));
  other_shards.stop();
}

/// Every step's tokens follow each other, and each has the logprobs that `long_step` gives it.
class StepChecker final : public SessionEvents {
 public:
  static constexpr uint32_t kTokens = 64;
  static constexpr uint32_t kAlternatives = 20;

  static inference::StepOutput long_step(uint32_t first, bool last) {
    inference::StepOutput step;
    for (uint32_t token = first; token < first + kTokens; ++token) {
      step.tokens.push_back(TokenId(token));
      step.logprobs.push_back(logprobs_of(token));
    }
    inference::Delta delta;
    delta.key = key(1);
    delta.offset = first;
    delta.token_count = kTokens;
    delta.finish = last ? inference::FinishReason::kLength : inference::FinishReason::kNone;
    step.deltas.push_back(delta);
    return step;
  }

  void on_opened(WorkerId /*worker*/) override {}
  void on_load(WorkerId /*worker*/, const engine::LoadReport& /*load*/) override {}
  void on_rejected(WorkerId /*worker*/, inference::RequestKey /*key*/, Error /*error*/) override {
    end();
  }
  void on_accepted(WorkerId /*worker*/, inference::RequestKey /*key*/) override {}
  void on_draining(WorkerId /*worker*/) override {}
  void on_closed(WorkerId /*worker*/, Error /*error*/) override { end(); }
  void on_step(WorkerId /*worker*/, inference::StepOutput step) override {
    for (const inference::Delta& delta : step.deltas) {
      intact_ = intact_ && delta.offset == next_;
      for (uint32_t i = 0; i < delta.token_count; ++i, ++next_) {
        const size_t at = delta.token_begin + i;
        const inference::TokenLogprobs expected = logprobs_of(next_);
        intact_ = intact_ && step.tokens[at] == TokenId(next_) &&
                  step.logprobs[at].sampled.token == expected.sampled.token &&
                  step.logprobs[at].top.size() == kAlternatives &&
                  step.logprobs[at].top.back().token == expected.top.back().token;
      }
      if (delta.finish != inference::FinishReason::kNone) {
        end();
      }
    }
  }

  void wait() { done_.wait(); }
  bool intact() const { return intact_; }
  uint32_t tokens() const { return next_; }

 private:
  static inference::TokenLogprobs logprobs_of(uint32_t token) {
    inference::TokenLogprobs logprobs;
    logprobs.sampled = {TokenId(token), -1.0F, 1};
    for (uint32_t i = 0; i < kAlternatives; ++i) {
      logprobs.top.push_back({TokenId(token + i), -1.0F, i + 1});
    }
    return logprobs;
  }
  void end() {
    if (!std::exchange(ended_, true)) {
      done_.count_down();
    }
  }

  uint32_t next_ = 0;
  bool intact_ = true;
  bool ended_ = false;
  std::latch done_{1};
};

// The loop reads on whenever it has emptied the inbox: not into the message that is being decoded.
TEST(GrpcSessionReads, LongStepsArriveUnchangedHoweverTheLoopKeepsUp) {
  test::WorkerHarness harness(Carrier::kGrpc);
  StepChecker events;
  auto session = harness.open(events);
  harness.on_loop([&] { session->submit(make_request(1)); });
  ASSERT_TRUE(harness.engine().wait_running(key(1)));
  const engine::SessionId id = harness.engine().session_of(key(1));

  constexpr uint32_t kSteps = 300;
  for (uint32_t step = 0; step < kSteps; ++step) {
    harness.engine().emit_step(
        id, StepChecker::long_step(step * StepChecker::kTokens, step + 1 == kSteps));
    if (step % 3 != 0) {  // lets some steps go one by one instead of merged
      std::this_thread::yield();
    }
  }
  events.wait();

  EXPECT_TRUE(events.intact());
  EXPECT_EQ(events.tokens(), kSteps * StepChecker::kTokens);
  harness.drop(std::move(session));
}

}  // namespace
}  // namespace stator::session
