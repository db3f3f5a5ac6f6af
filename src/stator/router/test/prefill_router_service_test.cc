// SPDX-License-Identifier: Apache-2.0
#include "stator/router/prefill_router_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/router/test/router_fixture.h"

namespace stator::router {
namespace {

using Otherwise = PrefillRouterService::Otherwise;
using Planned = PrefillRouterService::Planned;

/// Worker A computes prompts, one at a time; B answers.
class PrefillRouterServiceTest : public testing::Test {
 protected:
  PrefillRouterServiceTest() {
    answers_->add_worker(kB);
    service_->add_worker(kA, {});
  }
  Result<Planned> plan(Otherwise otherwise = Otherwise::kRunWhole) {
    return service_->plan(
        prompt_.request(), otherwise, {.arrival = clock_.now()},
        [this](Result<Decision> decision) { told_.push_back(std::move(decision)); });
  }
  double count(const char* path, const char* reason) {
    return static_cast<double>(metrics_
                                   .counter("stator_router_disaggregation_total", "",
                                            {{"model", "m"}, {"path", path}, {"reason", reason}})
                                   .value());
  }

  const RouterConfig config_{.wait = {.prefill_fraction = 0}, .queue = {.requests_max = 1}};
  SimClock clock_;
  Metrics metrics_;
  ReceiptLog receipts_;
  Prompt prompt_{160};
  std::shared_ptr<RouterService> answers_ =
      *RouterService::create(config_, "m", clock_, metrics_, receipts_);
  std::shared_ptr<PrefillRouterService> service_ =
      *PrefillRouterService::create(config_, "m", clock_, metrics_, receipts_, answers_);
  std::vector<Result<Decision>> told_;
};

TEST_F(PrefillRouterServiceTest, APromptWaitsUntilAPrefillWorkerHasRoom) {
  auto first = plan();
  ASSERT_TRUE(first->split.has_value());
  EXPECT_EQ(first->split->prefill.worker, kA);

  auto second = plan();
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(second->split.has_value());
  EXPECT_FALSE(second->ticket.empty());
  EXPECT_EQ(service_->prefill().waiting(), 1U);
  EXPECT_EQ(answers_->waiting(), 0U);
  EXPECT_THAT(metrics_.render(),
              testing::HasSubstr("router_queue_pending_requests{model=\"m\","
                                 "worker_type=\"prefill\",policy_class=\"default\"} 1\n"));

  first->split->prefill.lease.release();
  ASSERT_EQ(told_.size(), 1U);
  ASSERT_TRUE(told_[0].has_value());
  EXPECT_EQ(told_[0]->worker, kA);
  EXPECT_TRUE(service_->find_terms(prompt_.request(), kA)->override.track_prefill_tokens ==
              std::optional(false));
  EXPECT_THAT(metrics_.render(),
              testing::HasSubstr("active_decode_blocks{model=\"m\",worker_id=\"1\","
                                 "dp_rank=\"0\",worker_type=\"prefill\"} 0\n"))
      << "its blocks leave the worker";
  EXPECT_EQ(count("split", "all prefill workers are busy"), 1);
  told_.clear();
  EXPECT_EQ(service_->prefill().active_requests(), 0);
}

TEST_F(PrefillRouterServiceTest, WhoeverComesWhileOthersWaitWaitsToo) {
  auto first = plan();
  auto second = plan();
  second->ticket.cancel();
  EXPECT_EQ(service_->prefill().waiting(), 0U);
  first->split->prefill.lease.release();

  EXPECT_TRUE(told_.empty()) << "it has left";
  EXPECT_TRUE(plan()->split.has_value());
}

TEST_F(PrefillRouterServiceTest, WithAFullQueueTheRequestRunsWholeIfItCan) {
  const auto first = plan();
  const auto second = plan();

  const auto third = plan();
  ASSERT_TRUE(third.has_value());
  EXPECT_FALSE(third->split.has_value());
  EXPECT_TRUE(third->ticket.empty());

  const auto fails = plan(Otherwise::kFail);
  ASSERT_FALSE(fails.has_value());
  EXPECT_EQ(fails.error().code(), Code::kOverloaded);
}

TEST_F(PrefillRouterServiceTest, AWorkerThatIsGoneHasNoTerms) {
  EXPECT_TRUE(service_->find_terms(prompt_.request(), kA).has_value());
  service_->remove_worker(kA);
  EXPECT_FALSE(service_->find_terms(prompt_.request(), kA).has_value());
  EXPECT_FALSE(plan()->split.has_value()) << "it runs whole";
}

}  // namespace
}  // namespace stator::router
