// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/running_requests.h"

#include <gtest/gtest.h>

#include <chrono>

#include "stator/json/value.h"
#include "stator/telemetry/telemetry.h"

namespace stator::telemetry {
namespace {

using namespace std::chrono_literals;

RequestFacts facts_of(std::string id, TimePoint received) {
  RequestFacts facts;
  facts.request_id = std::move(id);
  facts.model = "m";
  facts.tenant = "acme";
  facts.received = received;
  facts.prompt_tokens = 7;
  return facts;
}

TEST(RunningRequests, ListsTheOldestFirstUntilTheyLeave) {
  RunningRequests list;
  auto late = list.add(facts_of("late", TimePoint(3s)));
  auto early = list.add(facts_of("early", TimePoint(1s)));
  auto middle = list.add(facts_of("middle", TimePoint(2s)));

  ASSERT_EQ(list.oldest(2).size(), 2U);
  EXPECT_EQ(list.oldest(2)[0].request_id, "early");
  EXPECT_EQ(list.oldest(2)[1].request_id, "middle");
  EXPECT_EQ(list.oldest(9, "late").size(), 1U);

  early.reset();
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(list.oldest(1)[0].request_id, "middle");
}

TEST(RunningRequests, FollowsARequest) {
  RunningRequests list;
  const auto place = list.add(facts_of("a", TimePoint(1s)));
  EXPECT_EQ(phase_of(list.oldest(1)[0]), "routing");

  place->note({.step = Step::kQueued, .at = TimePoint(2s)}, 0);
  EXPECT_EQ(phase_of(list.oldest(1)[0]), "queued");
  place->note({.step = Step::kSubmitted, .at = TimePoint(3s), .worker = 5}, 2);
  EXPECT_EQ(phase_of(list.oldest(1)[0]), "prefill");
  place->note({.step = Step::kFirstToken, .at = TimePoint(4s), .worker = 5}, 2);
  place->first_token(TimePoint(4s), 3);
  place->add_tokens(2);
  place->add_tokens(1);
  const RequestFacts now = list.oldest(1)[0];
  EXPECT_EQ(phase_of(now), "decode");
  EXPECT_EQ(now.worker, 5U);
  EXPECT_EQ(now.dp_rank, 2U);
  EXPECT_EQ(now.output_tokens, 3U);
  EXPECT_EQ(now.cached_tokens, 3U);
  EXPECT_EQ(now.ttft_ms(), 3000);

  place->note({.step = Step::kLost, .at = TimePoint(5s), .worker = 5}, 2);
  EXPECT_EQ(phase_of(list.oldest(1)[0]), "migrating");
  EXPECT_EQ(list.oldest(1)[0].migrations, 1U);
}

TEST(RunningRequests, IsBounded) {
  RunningRequests list;
  std::vector<RunningRequests::Place> places;
  for (size_t i = 0; i < RunningRequests::kListedMax; ++i) {
    places.push_back(list.add(facts_of("x", TimePoint())));
  }
  EXPECT_EQ(list.add(facts_of("one too many", TimePoint())), nullptr);
  places.pop_back();
  EXPECT_NE(list.add(facts_of("fits", TimePoint())), nullptr);
}

TEST(RunningRequests, AreShownBeforeThoseThatEnded) {
  SystemClock clock;
  Metrics metrics;
  const auto telemetry = Telemetry::start({}, true, clock, metrics);
  ASSERT_TRUE(telemetry);
  (*telemetry)->end(facts_of("over", clock.now()));
  const auto place = (*telemetry)->list_running(facts_of("runs", clock.now() - 5s));
  place->note({.step = Step::kSubmitted, .at = clock.now(), .worker = 1}, 0);

  const auto all = json::parse((*telemetry)->render_requests(9));
  ASSERT_EQ(all->size(), 2U);
  const json::Value& first = all->elements()[0];
  EXPECT_EQ(first.text_at({"request_id"}), "runs");
  EXPECT_EQ(first.text_at({"phase"}), "prefill");
  EXPECT_EQ(first.text_at({"tenant"}), "acme");
  EXPECT_EQ(first.find("status"), nullptr);
  EXPECT_GE(first.find("duration_ms")->as_double().value_or(0), 5000);
  EXPECT_EQ(all->elements()[1].text_at({"request_id"}), "over");
  using Shown = Telemetry::Shown;
  EXPECT_EQ(json::parse((*telemetry)->render_requests(9, "", Shown::kRunning))->size(), 1U);
  EXPECT_EQ(json::parse((*telemetry)->render_requests(9, "", Shown::kEnded))->size(), 1U);
}

TEST(RunningRequests, NobodyListsWhereNobodyLooks) {
  SystemClock clock;
  Metrics metrics;
  const auto telemetry = Telemetry::start({}, false, clock, metrics);
  EXPECT_EQ((*telemetry)->list_running(facts_of("a", clock.now())), nullptr);
}

}  // namespace
}  // namespace stator::telemetry
