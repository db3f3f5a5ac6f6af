// SPDX-License-Identifier: Apache-2.0
#include "stator/request/worker_probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::request {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{100s};

TEST(WorkerProbes, AProbeIsOneTokenInAndOneOut) {
  WorkerProbes probes;
  const inference::EngineRequest request = probes.begin(RequestId(7), WorkerId(1), nullptr, kStart);

  EXPECT_EQ(request.key, (inference::RequestKey{RequestId(7), Attempt(0)}));
  EXPECT_EQ(request.tokens.size(), 1U);
  EXPECT_EQ(request.stop.max_tokens, 1U);
  EXPECT_TRUE(request.stop.ignore_eos);
  EXPECT_EQ(request.deadline_ms, 3000U);
  EXPECT_FALSE(request.pool.has_value());
}

TEST(WorkerProbes, AModelThatGeneratesNothingIsAskedForItsFirstTask) {
  WorkerProbes probes;
  inference::PoolAbility ability;
  ability.wants_text = true;
  const inference::EngineRequest request =
      probes.begin(RequestId(7), WorkerId(1), &ability, kStart);

  ASSERT_TRUE(request.pool.has_value());
  EXPECT_EQ(request.pool->texts, std::vector<std::string>{"a"});
}

TEST(WorkerProbes, AProbeEndsOnce) {
  WorkerProbes probes;
  probes.begin(RequestId(7), WorkerId(1), nullptr, kStart);

  EXPECT_EQ(probes.end(RequestId(8)), std::nullopt);
  EXPECT_EQ(probes.end(RequestId(7)), WorkerId(1));
  EXPECT_EQ(probes.end(RequestId(7)), std::nullopt);
  EXPECT_EQ(probes.under_way(), 0U);
}

TEST(WorkerProbes, WithAWorkerItsProbesGo) {
  WorkerProbes probes;
  probes.begin(RequestId(1), WorkerId(1), nullptr, kStart);
  probes.begin(RequestId(2), WorkerId(2), nullptr, kStart);
  probes.begin(RequestId(3), WorkerId(1), nullptr, kStart);

  EXPECT_EQ(probes.end_of(WorkerId(1)), 2U);
  EXPECT_EQ(probes.end_of(WorkerId(1)), 0U);
  EXPECT_EQ(probes.under_way(), 1U);
}

TEST(WorkerProbes, LateOnesAreListedUntilTheyEnd) {
  WorkerProbes probes;
  probes.begin(RequestId(9), WorkerId(1), nullptr, kStart);
  probes.begin(RequestId(2), WorkerId(2), nullptr, kStart);
  probes.begin(RequestId(5), WorkerId(2), nullptr, kStart + 1s);

  EXPECT_TRUE(probes.late(kStart + 2999ms).empty());
  const auto late = probes.late(kStart + 3s);
  ASSERT_EQ(late.size(), 2U);
  EXPECT_EQ(late[0].id, RequestId(2));
  EXPECT_EQ(late[1].id, RequestId(9));
}

TEST(WorkerProbes, ItIsKnownWhenAWorkerWasHeardOf) {
  WorkerProbes probes;
  probes.heard_from(WorkerId(2), kStart);
  probes.heard_from(WorkerId(1), kStart);
  probes.heard_from(WorkerId(2), kStart + 1s);

  EXPECT_EQ(probes.last_heard(WorkerId(2)), kStart + 1s);
  EXPECT_THAT(probes.connected(), testing::ElementsAre(WorkerId(1), WorkerId(2)));
  probes.forget(WorkerId(2));
  EXPECT_EQ(probes.last_heard(WorkerId(2)), std::nullopt);
}

}  // namespace
}  // namespace stator::request
