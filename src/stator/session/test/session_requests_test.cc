// SPDX-License-Identifier: Apache-2.0
#include "stator/session/session_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stator::session {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerId kWorker(7);

inference::RequestKey key_of(uint64_t request) {
  return {RequestId(request), Attempt(0)};
}

inference::StepOutput step_of(uint64_t request, inference::FinishReason finish = {}) {
  inference::StepOutput step;
  step.tokens = {TokenId(1)};
  step.deltas = {{.key = key_of(request), .token_count = 1, .finish = finish}};
  return step;
}

class Recorder final : public SessionEvents {
 public:
  void on_rejected(WorkerId, inference::RequestKey, Error) override { note("rejected"); }
  void on_accepted(WorkerId, inference::RequestKey) override {
    note("accepted");
    if (then) {
      std::exchange(then, {})();
    }
  }
  void on_step(WorkerId, inference::StepOutput output) override {
    note("step " + std::to_string(output.deltas.size()));
  }
  void on_draining(WorkerId) override { note("draining"); }
  void on_closed(WorkerId, Error) override { note("closed"); }

  void note(std::string what) { seen.push_back(std::move(what)); }
  std::vector<std::string> seen;
  std::function<void()> then;  // after an acceptance
};

class SessionRequestsTest : public ::testing::Test {
 protected:
  Metrics metrics_;
  Recorder events_;
  SessionRequests requests_{kWorker, events_, SessionMetrics(metrics_)};
};

TEST_F(SessionRequestsTest, OutputImpliesAcceptanceAndThatComesOnce) {
  requests_.begin(key_of(1));

  requests_.deliver(step_of(1));
  requests_.deliver(SessionAccepted{key_of(1)});
  requests_.deliver(step_of(1));

  EXPECT_THAT(events_.seen, ElementsAre("accepted", "step 1", "step 1"));
}

TEST_F(SessionRequestsTest, NothingOfARequestComesAfterItsEnd) {
  requests_.begin(key_of(1));

  requests_.deliver(step_of(1, inference::FinishReason::kStop));
  requests_.deliver(step_of(1));

  EXPECT_THAT(events_.seen, ElementsAre("accepted", "step 1"));
  EXPECT_EQ(requests_.in_flight(), 0U);
  EXPECT_EQ(requests_.metrics().stale_deltas.value(), 1U);
}

TEST_F(SessionRequestsTest, ARequestThatIsCancelledOnItsAcceptanceGetsNoOutput) {
  requests_.begin(key_of(1));
  events_.then = [this] { requests_.forget(key_of(1)); };

  requests_.deliver(step_of(1));

  EXPECT_THAT(events_.seen, ElementsAre("accepted"));
}

TEST_F(SessionRequestsTest, ASessionThatIsClosedOnAnAcceptanceDeliversNothingMore) {
  requests_.begin(key_of(1));
  requests_.begin(key_of(2));
  inference::StepOutput step = step_of(1);
  step.tokens.emplace_back(2);
  step.deltas.push_back({.key = key_of(2), .token_begin = 1, .token_count = 1});
  events_.then = [this] { requests_.close(); };

  requests_.deliver(std::move(step));

  EXPECT_THAT(events_.seen, ElementsAre("accepted"));
  EXPECT_EQ(requests_.metrics().stale_deltas.value(), 0U);
}

TEST_F(SessionRequestsTest, AClosedSessionDeliversNothing) {
  requests_.begin(key_of(1));
  requests_.deliver(SessionClosed{Error(Code::kDisconnected, "gone")});
  events_.seen.clear();

  requests_.deliver(SessionAccepted{key_of(1)});
  requests_.deliver(step_of(1));
  requests_.deliver(SessionDraining());
  requests_.deliver(SessionClosed{Error(Code::kDisconnected, "gone again")});

  EXPECT_THAT(events_.seen, IsEmpty());
  EXPECT_FALSE(requests_.open());
}

TEST_F(SessionRequestsTest, ARejectionOfARequestThatWasWithdrawnIsDropped) {
  requests_.begin(key_of(1));
  requests_.begin(key_of(2));
  requests_.forget(key_of(2));

  requests_.deliver(SessionRejected{{key_of(1), Error(Code::kOverloaded, "full")}});
  requests_.deliver(SessionRejected{{key_of(2), Error(Code::kOverloaded, "full")}});

  EXPECT_THAT(events_.seen, ElementsAre("rejected"));
}

}  // namespace
}  // namespace stator::session
