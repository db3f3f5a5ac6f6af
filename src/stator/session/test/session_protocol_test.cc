// SPDX-License-Identifier: Apache-2.0
#include "stator/session/session_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/session_requests.h"
#include "stator/session/wire.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Recorder final : public SessionEvents {
 public:
  void on_opened(WorkerId) override { seen.emplace_back("opened"); }
  void on_rejected(WorkerId, inference::RequestKey, Error) override {
    seen.emplace_back("rejected");
  }
  void on_accepted(WorkerId, inference::RequestKey) override { seen.emplace_back("accepted"); }
  void on_step(WorkerId, inference::StepOutput) override { seen.emplace_back("step"); }
  void on_draining(WorkerId) override { seen.emplace_back("draining"); }
  void on_closed(WorkerId, Error) override { seen.emplace_back("closed"); }
  std::vector<std::string> seen;
};

/// What a client makes of what a worker says. We asked for worker 7, incarnation 100.
class SessionProtocolTest : public ::testing::Test {
 protected:
  ~SessionProtocolTest() override { requests_.close(); }
  static pb::WorkerMessage welcome(uint32_t protocol, uint64_t worker, uint64_t incarnation) {
    pb::WorkerMessage message;
    message.mutable_welcome()->set_protocol(protocol);
    message.mutable_welcome()->set_worker_id(worker);
    message.mutable_welcome()->set_incarnation(incarnation);
    return message;
  }
  /// What is delivered of a message.
  Status hear(const pb::WorkerMessage& message) {
    STATOR_TRY(SessionEvent event,
               read_message(message, {WorkerId(7), Incarnation(100)}, requests_.metrics()));
    requests_.deliver(std::move(event));
    return {};
  }
  uint64_t rejected() const { return requests_.metrics().rejected_messages.value(); }

  Metrics metrics_;
  Recorder events_;
  SessionRequests requests_{WorkerId(7), events_, SessionMetrics(metrics_)};
};

TEST_F(SessionProtocolTest, TheWorkerWeAskedForIsWelcome) {
  ASSERT_TRUE(hear(welcome(wire::kProtocolVersion, 7, 100)).has_value());
  EXPECT_TRUE(requests_.has_opened());
  EXPECT_THAT(events_.seen, ElementsAre("opened"));
  EXPECT_EQ(rejected(), 0U);
}

TEST_F(SessionProtocolTest, AnotherWorkerLifeOrProtocolIsNotTrusted) {
  for (const auto& message : {welcome(wire::kProtocolVersion, 8, 100),
                              welcome(wire::kProtocolVersion, 7, 99), welcome(2, 7, 100)}) {
    const auto heard = hear(message);
    ASSERT_FALSE(heard.has_value());
    EXPECT_EQ(heard.error().code(), Code::kDisconnected);
  }
  EXPECT_THAT(events_.seen, IsEmpty());
  EXPECT_EQ(rejected(), 3U);
}

TEST_F(SessionProtocolTest, AMessageOfAnUnknownKindIsCountedAndPassedOver) {
  ASSERT_TRUE(hear(pb::WorkerMessage()).has_value());
  EXPECT_EQ(rejected(), 1U);
  EXPECT_TRUE(requests_.open());
}

TEST_F(SessionProtocolTest, AStepThatContradictsItselfPutsTheWholeSessionInDoubt) {
  pb::WorkerMessage message;
  pb::StepOutput& step = *message.mutable_step();
  step.add_tokens(1);
  pb::Delta& delta = *step.add_deltas();
  delta.set_request(1);
  delta.set_token_count(2);  // there is one
  EXPECT_FALSE(hear(message).has_value());
  EXPECT_EQ(rejected(), 1U);
}

}  // namespace
}  // namespace stator::session
