// SPDX-License-Identifier: Apache-2.0
#include "stator/session/worker_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/session/test/worker_harness.h"

namespace stator::session {
namespace {

using test::Carrier;
using test::key;
using test::make_request;
using testing::ElementsAre;

/// The guarantees of WorkerSession, whatever carries it.
class WorkerSessionTest : public testing::TestWithParam<Carrier> {
 protected:
  void SetUp() override { session_ = harness_.open(events_); }
  void TearDown() override { harness_.drop(std::move(session_)); }

  void submit(uint64_t request) {
    harness_.on_loop([&] { session_->submit(make_request(request)); });
    ASSERT_TRUE(harness_.engine().wait_running(key(request)));
  }

  test::SessionRecorder events_;
  test::WorkerHarness harness_{GetParam()};
  std::unique_ptr<WorkerSession> session_;
};

INSTANTIATE_TEST_SUITE_P(Carriers, WorkerSessionTest,
                         testing::Values(Carrier::kInProcess, Carrier::kGrpc), test::carrier_name);

TEST_P(WorkerSessionTest, OpensAndTellsTheLoadOnChange) {
  ASSERT_TRUE(events_.wait_for("opened"));
  ASSERT_TRUE(events_.wait_load(0));

  harness_.engine().set_cached_blocks(5);

  EXPECT_TRUE(events_.wait_load(5));
}

TEST_P(WorkerSessionTest, StreamsOneRequestFromAcceptanceToItsEnd) {
  submit(1);
  ASSERT_TRUE(events_.wait_for("accepted 1"));
  harness_.engine().emit(key(1), {20, 21}, 0);
  ASSERT_TRUE(events_.wait_for("delta 1 @0 20 21"));
  harness_.engine().emit(key(1), {22}, 2, inference::FinishReason::kStop);
  ASSERT_TRUE(events_.wait_for("delta 1 @2 22 end"));

  EXPECT_THAT(events_.lines(),
              ElementsAre("opened", "accepted 1", "delta 1 @0 20 21", "delta 1 @2 22 end"));
}

TEST_P(WorkerSessionTest, DeliversEveryFieldOfARequest) {
  inference::EngineRequest request = make_request(1);
  request.key.attempt = Attempt(3);
  request.generated = 2;
  request.priority = -4;
  request.cache_salt = "tenant";
  request.lora_name = "adapter";
  request.deadline_ms = 60000;
  request.sampling.seed = -9;
  request.stop.stop_token_ids = {5};
  harness_.on_loop([&] { session_->submit(request); });
  ASSERT_TRUE(harness_.engine().wait_running(request.key));

  const inference::EngineRequest got = harness_.engine().request(request.key);

  EXPECT_EQ(got.tokens, request.tokens);
  EXPECT_EQ(got.generated, 2U);
  EXPECT_EQ(got.priority, -4);
  EXPECT_EQ(got.cache_salt, "tenant");
  EXPECT_EQ(got.lora_name, "adapter");
  EXPECT_EQ(got.deadline_ms, 60000U);
  EXPECT_EQ(got.sampling.seed, -9);
  EXPECT_EQ(got.stop.stop_token_ids, request.stop.stop_token_ids);
}

TEST_P(WorkerSessionTest, RejectsWithTheEnginesCodeAndNothingElse) {
  harness_.engine().refuse_with(Error(Code::kOverloaded, "full"));
  harness_.on_loop([&] { session_->submit(make_request(1)); });

  ASSERT_TRUE(events_.wait_for("rejected 1 overloaded"));
  EXPECT_THAT(events_.lines(), ElementsAre("opened", "rejected 1 overloaded"));
}

TEST_P(WorkerSessionTest, TellsAcceptanceBeforeOutputThatOvertakesIt) {
  harness_.engine().answer_inside_submit();
  submit(1);
  ASSERT_TRUE(events_.wait_for("delta 1 @0 1"));
  harness_.engine().emit(key(1), {2}, 1, inference::FinishReason::kLength);
  ASSERT_TRUE(events_.wait_for("delta 1 @1 2 end"));

  EXPECT_THAT(events_.lines(),
              ElementsAre("opened", "accepted 1", "delta 1 @0 1", "delta 1 @1 2 end"));
}

TEST_P(WorkerSessionTest, CancelFreesTheEngineAndSilencesTheKey) {
  submit(1);
  submit(2);
  ASSERT_TRUE(events_.wait_for("accepted 2"));
  const engine::SessionId engine_session = harness_.engine().session_of(key(1));
  harness_.on_loop([&] { session_->cancel(key(1), CancelReason::kClientGone); });
  ASSERT_TRUE(harness_.engine().wait_cancelled(1));

  inference::StepOutput late;
  late.deltas.resize(1);
  late.deltas[0].key = key(1);
  late.deltas[0].token_count = 1;
  late.tokens = {9};
  harness_.engine().emit_step(engine_session, std::move(late));
  harness_.engine().emit(key(2), {3}, 0, inference::FinishReason::kStop);

  ASSERT_TRUE(events_.wait_for("delta 2 @0 3 end"));
  EXPECT_EQ(events_.count("delta 1 @0 9"), 0U);
}

TEST_P(WorkerSessionTest, AnEngineFailureEndsItsRequestOnly) {
  submit(1);
  submit(2);
  harness_.engine().fail(key(1), Error(Code::kInternal, "kernel died"));
  ASSERT_TRUE(events_.wait_for("failed 1 internal"));
  harness_.engine().emit(key(2), {4}, 0, inference::FinishReason::kStop);

  EXPECT_TRUE(events_.wait_for("delta 2 @0 4 end"));
}

TEST_P(WorkerSessionTest, CloseFreesTheEngineAndNothingFollows) {
  submit(1);
  ASSERT_TRUE(events_.wait_for("accepted 1"));
  harness_.on_loop([&] { session_->close(); });
  ASSERT_TRUE(harness_.engine().wait_sessions(0));
  const auto before = events_.lines();

  harness_.engine().emit(key(1), {4}, 0);
  harness_.stop_worker();
  harness_.on_loop([] {});

  EXPECT_EQ(events_.lines(), before);
}

TEST_P(WorkerSessionTest, LosingTheWorkerClosesOnceForEverythingInFlight) {
  submit(1);
  submit(2);
  ASSERT_TRUE(events_.wait_for("accepted 2"));
  harness_.stop_worker();
  ASSERT_TRUE(events_.wait_for("closed disconnected"));

  harness_.on_loop([&] {
    session_->submit(make_request(3));
    session_->cancel(key(1), CancelReason::kStopped);
  });
  harness_.on_loop([] {});

  EXPECT_THAT(events_.lines(),
              ElementsAre("opened", "accepted 1", "accepted 2", "closed disconnected"));
}

TEST_P(WorkerSessionTest, DrainingRefusesNewWorkAndFinishesTheOld) {
  submit(1);
  ASSERT_TRUE(events_.wait_for("accepted 1"));
  harness_.drain();
  ASSERT_TRUE(events_.wait_for("draining"));
  harness_.on_loop([&] { session_->submit(make_request(2)); });
  ASSERT_TRUE(events_.wait_for("rejected 2 draining"));
  harness_.engine().emit(key(1), {4}, 0, inference::FinishReason::kStop);

  EXPECT_TRUE(events_.wait_for("delta 1 @0 4 end"));
}

TEST_P(WorkerSessionTest, ASessionOpenedWhileDrainingIsTold) {
  harness_.drain();
  test::SessionRecorder events;
  auto session = harness_.open(events);

  EXPECT_TRUE(events.wait_for("draining"));

  harness_.drop(std::move(session));
}

TEST_P(WorkerSessionTest, SessionsOfOneWorkerDoNotDisturbEachOther) {
  test::SessionRecorder other_events;
  auto other = harness_.open(other_events);
  submit(1);
  harness_.on_loop([&] { other->submit(make_request(2)); });
  ASSERT_TRUE(harness_.engine().wait_running(key(2)));
  harness_.drop(std::move(other));
  ASSERT_TRUE(harness_.engine().wait_running_count(1));

  harness_.engine().emit(key(1), {4}, 0, inference::FinishReason::kStop);

  EXPECT_TRUE(events_.wait_for("delta 1 @0 4 end"));
}

TEST_P(WorkerSessionTest, KeepsManyRequestsOfManyStepsInOrder) {
  constexpr uint64_t kRequests = 50;
  constexpr uint32_t kSteps = 40;
  harness_.on_loop([&] {
    for (uint64_t request = 1; request <= kRequests; ++request) {
      session_->submit(make_request(request));
    }
  });
  ASSERT_TRUE(harness_.engine().wait_running_count(kRequests));
  const engine::SessionId engine_session = harness_.engine().session_of(key(1));
  for (uint32_t step = 0; step < kSteps; ++step) {
    inference::StepOutput output;
    for (uint32_t request = 1; request <= kRequests; ++request) {
      inference::Delta delta{
          .key = key(request), .offset = step, .token_begin = request - 1, .token_count = 1};
      delta.finish =
          step + 1 == kSteps ? inference::FinishReason::kLength : inference::FinishReason::kNone;
      output.deltas.push_back(delta);
      output.tokens.push_back(request * 1000 + step);
    }
    harness_.engine().emit_step(engine_session, std::move(output));
  }

  for (uint64_t request = 1; request <= kRequests; ++request) {
    ASSERT_TRUE(events_.wait_tokens(request, kSteps));
  }
  std::vector<std::string> of_last;
  for (const std::string& line : events_.lines()) {
    if (line.starts_with("delta 50 ")) {
      of_last.push_back(line);
    }
  }
  ASSERT_EQ(of_last.size(), kSteps);
  for (uint32_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(of_last[step], fmt::format("delta 50 @{} {}{}", step, 50000 + step,
                                         step + 1 == kSteps ? " end" : ""));
  }
}

}  // namespace
}  // namespace stator::session
