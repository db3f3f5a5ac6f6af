// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "stator/json/value.h"
#include "stator/router/test/router_fixture.h"

namespace stator::router {
namespace {

using ::testing::HasSubstr;

TEST(Router, KvSendsThePrefixToWhoHoldsIt) {
  const auto router = make_router("kv");
  const Prompt prompt(160);
  router->apply(kB, prompt.stored());
  for (int i = 0; i < 20; ++i) {
    const auto decision = router->route(prompt.request(), kNow);
    ASSERT_TRUE(decision.has_value());
    EXPECT_EQ(decision->worker, kB);
    EXPECT_EQ(decision->overlap_blocks, 10U);
  }
}

TEST(Router, KvPrefersAnIdleWorkerOverABusyOneWithLittleCache) {
  const auto router = make_router("kv");
  const Prompt prompt(160);
  const Prompt shared(16);
  router->apply(kB, shared.stored());
  std::vector<Decision> running;
  RouteRequest pinned = prompt.request();
  pinned.constraints.pinned = kB.worker;
  for (int i = 0; i < 3; ++i) {
    running.push_back(std::move(*router->route(pinned, kNow)));
  }
  EXPECT_EQ(router->route(prompt.request(), kNow)->worker, kA);
}

TEST(Router, WhatASharedCacheHasMakesTheOwnCacheWorthLess) {
  const auto router = make_router("kv");
  const Prompt prompt(160);
  router->apply(kB, prompt.stored());
  RouteRequest other = prompt.request();
  other.constraints.pinned = kB.worker;
  other.prompt_tokens = 64;
  other.sequences = {};  // with nothing in common
  const auto running = router->route(other, kNow);
  ASSERT_TRUE(running);

  RouteRequest request = prompt.request();
  EXPECT_EQ(router->route(request, kNow)->worker, kB);
  request.shared_blocks = 10;
  EXPECT_EQ(router->route(request, kNow)->worker, kA);
  request.override.shared_multiplier = 0;
  EXPECT_EQ(router->route(request, kNow)->worker, kB);
}

TEST(Router, LoadIsBookedBeforeTheAnswerAndBalancesToZero) {
  const auto router = make_router("kv");
  const Prompt prompt(100);
  {
    auto first = router->route(prompt.request(), kNow);
    auto second = router->route(prompt.request(), kNow);
    EXPECT_EQ(router->active_requests(), 2);
    EXPECT_NE(first->worker, second->worker) << "the second sees the first one's load";
  }
  EXPECT_EQ(router->active_requests(), 0);
}

TEST(Router, RoundRobinTakesTurns) {
  const auto router = make_router("round_robin");
  const Prompt prompt(16);
  EXPECT_EQ(router->route(prompt.request(), kNow)->worker, kA);
  EXPECT_EQ(router->route(prompt.request(), kNow)->worker, kB);
  EXPECT_EQ(router->route(prompt.request(), kNow)->worker, kA);
}

TEST(Router, RandomReachesEveryWorker) {
  const auto router = make_router("random");
  std::map<WorkerKey, int> counts;
  for (int i = 0; i < 200; ++i) {
    ++counts[router->route(Prompt(16).request(), kNow)->worker];
  }
  EXPECT_GT(counts[kA], 50);
  EXPECT_GT(counts[kB], 50);
}

TEST(Router, LeastLoadedCountsRequestsInFlight) {
  const auto router = make_router("least_loaded");
  RouteRequest pinned = prompt_of(16).request();
  pinned.constraints.pinned = kA.worker;
  const auto busy = router->route(pinned, kNow);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(router->route(Prompt(16).request(), kNow)->worker, kB);
  }
}

TEST(Router, DirectNeedsAWorker) {
  const auto router = make_router("direct");
  const auto decision = router->route(Prompt(16).request(), kNow);
  ASSERT_FALSE(decision.has_value());
  EXPECT_EQ(decision.error().code(), Code::kInvalidArgument);
  RouteRequest pinned = prompt_of(16).request();
  pinned.constraints.pinned = kB.worker;
  EXPECT_EQ(router->route(pinned, kNow)->worker, kB);
}

TEST(Router, AnUnknownPinIsNotFound) {
  const auto router = make_router("kv");
  RouteRequest pinned = prompt_of(16).request();
  pinned.constraints.pinned = WorkerId(77);
  EXPECT_EQ(router->route(pinned, kNow).error().code(), Code::kNotFound);
}

TEST(Router, DrainingAndTriedWorkersGetNothingNew) {
  const auto router = make_router("kv");
  router->set_draining(kA, true);
  RouteRequest request = prompt_of(16).request();
  EXPECT_EQ(router->route(request, kNow)->worker, kB);
  const std::array tried = {kB};
  request.constraints.excluded = tried;
  const auto nobody = router->route(request, kNow);
  ASSERT_FALSE(nobody.has_value());
  EXPECT_EQ(nobody.error().code(), Code::kUnavailable);
  EXPECT_THAT(nobody.error().message(), HasSubstr("all 2 workers of model 'm'"));
}

TEST(Router, WithoutWorkersTheErrorNamesTheModel) {
  const auto router = make_router("kv");
  router->remove_worker(kA);
  router->remove_worker(kB);
  EXPECT_THAT(router->route(Prompt(16).request(), kNow).error().message(),
              HasSubstr("no worker serves model 'm'"));
}

TEST(Router, ALeaseMayOutliveItsWorkerAndItsRouter) {
  auto router = make_router("kv");
  auto decision = router->route(Prompt(16).request(), kNow);
  router->remove_worker(decision->worker);
  router.reset();
  decision->lease.release();
}

TEST(Router, EventsOfAWorkerThatLeftAreIgnored) {
  const auto router = make_router("kv");
  router->remove_worker(kB);
  EXPECT_EQ(router->apply(kB, Prompt(160).stored()), Applied::kUnknownBlock);
  EXPECT_EQ(router->index().holder_blocks(), 0U);
}

TEST(Router, BadConfigurationIsRefused) {
  RouterConfig config;
  config.mode = "psychic";
  EXPECT_THAT(Router::create(config, LoadBook::make(clock()), Random(1)).error().message(),
              HasSubstr("kv, round_robin"));
  config = {};
  config.cost.temperature = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Router::create(config, LoadBook::make(clock()), Random(1)).error().code(),
            Code::kInvalidArgument);
}

TEST(Receipt, TellsWhatTheDecisionSaw) {
  const auto router = make_router("kv");
  const Prompt prompt(160);
  router->apply(kB, prompt.stored());
  const auto decision = router->route(prompt.request(), kNow);
  const Receipt& receipt = decision->receipt;
  EXPECT_EQ(receipt.chosen, kB);
  EXPECT_EQ(receipt.prompt_blocks, 10U);
  ASSERT_EQ(receipt.candidates.size(), 2U);
  EXPECT_EQ(receipt.candidates[1].overlap_blocks, 10U);
  EXPECT_GT(receipt.candidates[0].cost, receipt.candidates[1].cost);
  EXPECT_EQ(receipt.reason, "lowest cost; holds the longest cached prefix");

  const json::Value shown = *json::parse(render_json(receipt));
  EXPECT_EQ(shown.at("chosen").at("worker_id").text(), "2");
  EXPECT_EQ(shown.at("candidates").elements().size(), 2U);
  EXPECT_THAT(render_text(receipt), HasSubstr("<- chosen"));
}

TEST(ReceiptLog, KeepsTheNewestUpToItsCapacity) {
  ReceiptLog log(3);
  for (int i = 0; i < 5; ++i) {
    Receipt receipt;
    receipt.request_id = "r" + std::to_string(i);
    log.add(std::move(receipt));
  }
  EXPECT_FALSE(log.find("r1").has_value());
  EXPECT_TRUE(log.find("r2").has_value());
  EXPECT_EQ(log.find("last")->request_id, "r4");
  EXPECT_FALSE(ReceiptLog().find("last").has_value());
}

TEST(Router, ConstraintsNarrowWhoMayTakeARequest) {
  const auto router = make_router("kv");
  router->add_worker(kB, {.taints = {"zone=b"}});
  RouteRequest request = prompt_of(16).request();
  const std::array allowed = {kB.worker};
  request.constraints.allowed = allowed;
  EXPECT_EQ(router->route(request, kNow)->worker, kB);
  request.constraints.pinned = kA.worker;
  EXPECT_EQ(router->route(request, kNow).error().code(), Code::kUnavailable);
  EXPECT_EQ(router->last_refusal(), Refusal::kAllFiltered);

  RouteRequest tainted = prompt_of(16).request();
  const std::array<std::string, 1> zone = {"zone=b"};
  tainted.constraints.required_taints = zone;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(router->route(tainted, kNow)->worker, kB);
  }
  const std::array<std::string, 1> nowhere = {"zone=c"};
  tainted.constraints.required_taints = nowhere;
  EXPECT_THAT(router->route(tainted, kNow).error().message(), HasSubstr("required taints"));
}

TEST(Router, APinMayNameTheRank) {
  const auto router = make_router("kv");
  router->add_worker({kB.worker, 1});
  RouteRequest request = prompt_of(16).request();
  request.constraints.pinned = kB.worker;
  request.constraints.pinned_rank = 1;
  EXPECT_EQ(router->route(request, kNow)->worker, (WorkerKey{kB.worker, 1}));
  request.constraints.pinned_rank = 2;
  EXPECT_EQ(router->route(request, kNow).error().code(), Code::kNotFound);
}

TEST(Router, PreferredTaintsWeighTheCost) {
  EXPECT_NEAR(12 * taint_factor(std::array<std::string, 2>{"a", "b"},
                                std::array<std::pair<std::string, float>, 3>{
                                    {{"a", 0.5F}, {"b", 0.3F}, {"c", 9.0F}}}),
              12 * std::exp(-std::tanh(0.8)), 1e-6);
  const auto router = make_router("kv");
  router->add_worker(kB, {.taints = {"near"}});
  const std::array<std::pair<std::string, float>, 1> near = {{{"near", 1.0F}}};
  RouteRequest request = prompt_of(160).request();
  request.constraints.preferred_taints = near;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(router->route(request, kNow)->worker, kB);
  }
  const std::array<std::pair<std::string, float>, 1> far = {{{"near", -1.0F}}};
  request.constraints.preferred_taints = far;
  EXPECT_EQ(router->route(request, kNow)->worker, kA);
}

TEST(Router, WorkersBeyondTheThresholdsGetNothing) {
  for (const std::string& mode : {"kv", "round_robin", "random", "least_loaded"}) {
    RouterConfig config;
    config.reject.prefill_tokens = 100;
    config.brown_out.step = 0;
    const auto router = make_router(mode, config);
    RouteRequest to_a = prompt_of(150).request();
    to_a.constraints.pinned = kA.worker;
    const auto busy = router->route(to_a, kNow);
    EXPECT_EQ(router->route(to_a, kNow).error().code(), Code::kOverloaded);
    EXPECT_EQ(router->last_refusal(), Refusal::kPinnedBusy);
    const auto other = router->route(Prompt(101).request(), kNow);
    EXPECT_EQ(other->worker, kB) << mode;
    const auto refused = router->route(Prompt(16).request(), kNow);
    ASSERT_FALSE(refused.has_value()) << mode;
    EXPECT_EQ(refused.error().code(), Code::kOverloaded);
    EXPECT_EQ(router->last_refusal(), Refusal::kAllBusy);
  }
}

TEST(Router, UnderOverloadTheLowestTierIsRefusedFirst) {
  RouterConfig config;
  config.mode = "least_loaded";
  config.reject.prefill_tokens = 100;
  config.brown_out.step = 0.5;
  const auto refusal_at = [&](uint32_t load_tokens, int32_t tier) -> std::optional<Refusal> {
    const auto router = make_router("least_loaded", config);
    std::vector<Decision> running;
    for (const WorkerKey worker : {kA, kB}) {
      const Prompt prompt(load_tokens);
      RouteRequest load = prompt.request();
      load.constraints.pinned = worker.worker;
      running.push_back(*router->route(load, kNow));
    }
    const Prompt prompt(16);
    RouteRequest request = prompt.request();
    request.tier = tier;
    return router->route(request, kNow) ? std::nullopt : std::optional(router->last_refusal());
  };

  EXPECT_EQ(refusal_at(50, -1), std::nullopt);
  EXPECT_EQ(refusal_at(51, -1), Refusal::kBrownOut);
  EXPECT_EQ(refusal_at(100, 0), std::nullopt);
  EXPECT_EQ(refusal_at(101, 0), Refusal::kBrownOut);
  EXPECT_EQ(refusal_at(101, 1), std::nullopt);
  EXPECT_EQ(refusal_at(151, 1), Refusal::kBrownOut);
  EXPECT_EQ(refusal_at(300, BrownOut::kTierMax), std::nullopt);
  EXPECT_EQ(refusal_at(301, BrownOut::kTierMax), Refusal::kAllBusy);
  EXPECT_EQ(refusal_at(301, 0), Refusal::kAllBusy);

  config.brown_out.step = 0;
  EXPECT_EQ(refusal_at(101, BrownOut::kTierMax), Refusal::kAllBusy) << "all are equal";
}

TEST(Router, TiersComeFromPriorities) {
  EXPECT_EQ(tier_of(0, 0), 0);
  EXPECT_EQ(tier_of(0, 7), 0) << "a head start in the queue is no tier";
  EXPECT_EQ(tier_of(0, -1), BrownOut::kTierMin);
  EXPECT_EQ(tier_of(2, -1), 2);
  EXPECT_EQ(tier_of(~0U, 0), BrownOut::kTierMax);
}

TEST(Router, ThresholdsAreStrictAndKnowTheWorkersSize) {
  BusyThresholds thresholds;
  EXPECT_FALSE(thresholds.exceeded({.prefill_tokens = 1e9, .active_blocks = 1e9}, {}));
  thresholds = {.prefill_fraction = 0.5};
  const WorkerFacts facts{.total_kv_blocks = 100, .max_num_batched_tokens = 2000};
  EXPECT_FALSE(thresholds.exceeded({.prefill_tokens = 1000}, facts));
  EXPECT_TRUE(thresholds.exceeded({.prefill_tokens = 1001}, facts));
  thresholds = {.kv_fraction = 0.9};
  EXPECT_FALSE(thresholds.exceeded({.active_blocks = 90}, facts));
  EXPECT_TRUE(thresholds.exceeded({.active_blocks = 91}, facts));
  EXPECT_FALSE(thresholds.exceeded({.active_blocks = 91}, {})) << "its size is not known";
}

TEST(Router, OneRequestMayOverrideTheWeights) {
  const auto router = make_router("kv");
  const Prompt prompt(160);
  router->apply(kB, prompt.stored());
  RouteRequest busy = prompt_of(16).request();
  busy.constraints.pinned = kB.worker;
  busy.override.assume_kv_reuse = false;  // its block is not one of the prompt's
  const auto running = router->route(busy, kNow);
  RouteRequest request = prompt.request();
  EXPECT_EQ(router->route(request, kNow)->worker, kB) << "its cache is worth the wait";
  request.override.overlap_credit = 0;
  EXPECT_EQ(router->route(request, kNow)->worker, kA);
  request.override.track_prefill_tokens = false;
  const auto untracked = router->route(request, kNow);
  EXPECT_EQ(untracked->receipt.temperature, 0);
  request.override.temperature = 0.7;
  EXPECT_EQ(router->route(request, kNow)->receipt.temperature, 0.7);
}

TEST(Router, TheOperatorSaysWhatCountsUnlessTheRequestDoes) {
  const auto router = make_router("kv", {.assume_kv_reuse = false, .track_prefill_tokens = false});
  const Prompt prompt(160);
  RouteRequest request = prompt.request();
  request.constraints.pinned = kA.worker;
  std::vector<LoadLease> leases;
  const auto send = [&] { leases.push_back(std::move(router->route(request, kNow)->lease)); };
  send();
  send();
  EXPECT_EQ(router->load_of(kA).active_blocks, 20) << "an equal prefix is not shared";
  EXPECT_EQ(router->load_of(kA).prefill_tokens, 0) << "nor prompts counted";
  request.override = {.assume_kv_reuse = true, .track_prefill_tokens = true};
  send();
  send();
  EXPECT_EQ(router->load_of(kA).active_blocks, 30);
  EXPECT_EQ(router->load_of(kA).prefill_tokens, 320);
}

TEST(Router, ReceiptsOfALargeFleetStaySmall) {
  const auto router = make_router("kv");
  for (uint64_t i = 10; i < 200; ++i) {
    router->add_worker({WorkerId(i), 0});
  }
  const Prompt prompt(160);
  router->apply({WorkerId(150), 0}, prompt.stored());
  const auto decision = router->route(prompt.request(), kNow);
  EXPECT_EQ(decision->worker.worker, WorkerId(150));
  const Receipt& receipt = decision->receipt;
  EXPECT_EQ(receipt.workers, 192U);
  EXPECT_EQ(receipt.eligible, 192U);
  ASSERT_EQ(receipt.candidates.size(), kReceiptCandidatesMax);
  EXPECT_EQ(receipt.candidates.front().worker, decision->worker);
  EXPECT_TRUE(std::ranges::is_sorted(receipt.candidates, {}, &ReceiptCandidate::cost));
}

}  // namespace
}  // namespace stator::router
