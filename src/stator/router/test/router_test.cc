// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>
#include <map>
#include <numeric>

#include "stator/router/router_service.h"

namespace stator::router {
namespace {

using ::testing::HasSubstr;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};
constexpr WallTime kNow{};

std::unique_ptr<Router> make_router(const std::string& mode) {
  RouterConfig config;
  config.mode = mode;
  auto router = Router::create(config, Random(9));
  EXPECT_TRUE(router.has_value());
  (*router)->add_worker(kA);
  (*router)->add_worker(kB);
  return std::move(*router);
}

/// A prompt of `count` tokens, hashed, with the event that says a worker has all its full blocks.
struct Prompt {
  explicit Prompt(uint32_t count) : tokens(count), hasher(16, blocks::hash_seed("", "")) {
    std::iota(tokens.begin(), tokens.end(), TokenId{0});
    hasher.append(tokens);
  }
  RouteRequest request() const {
    return {.request_id = "r1",
            .model = "m",
            .prompt_tokens = static_cast<uint32_t>(tokens.size()),
            .block_size = 16,
            .sequences = hasher.sequences()};
  }
  kv::KvEvent stored() const {
    kv::BlocksStored run;
    for (size_t i = 0; i < hasher.locals().size(); ++i) {
      run.blocks.push_back(
          {blocks::ExternalHash(hasher.sequences()[i].value()), hasher.locals()[i]});
    }
    return {.event_id = 1, .data = std::move(run)};
  }
  std::vector<TokenId> tokens;
  blocks::BlockHasher hasher;
};

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
  pinned.pinned = kB.worker;
  for (int i = 0; i < 3; ++i) {
    running.push_back(std::move(*router->route(pinned, kNow)));
  }
  EXPECT_EQ(router->route(prompt.request(), kNow)->worker, kA);
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
  RouteRequest pinned = Prompt(16).request();
  pinned.pinned = kA.worker;
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
  RouteRequest pinned = Prompt(16).request();
  pinned.pinned = kB.worker;
  EXPECT_EQ(router->route(pinned, kNow)->worker, kB);
}

TEST(Router, AnUnknownPinIsNotFound) {
  const auto router = make_router("kv");
  RouteRequest pinned = Prompt(16).request();
  pinned.pinned = WorkerId(77);
  EXPECT_EQ(router->route(pinned, kNow).error().code(), Code::kNotFound);
}

TEST(Router, DrainingAndTriedWorkersGetNothingNew) {
  const auto router = make_router("kv");
  router->set_draining(kA, true);
  RouteRequest request = Prompt(16).request();
  EXPECT_EQ(router->route(request, kNow)->worker, kB);
  const std::array tried = {kB};
  request.excluded = tried;
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
  EXPECT_THAT(Router::create(config, Random(1)).error().message(), HasSubstr("kv, round_robin"));
  config = {};
  config.cost.temperature = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Router::create(config, Random(1)).error().code(), Code::kInvalidArgument);
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

  const auto json = boost::json::parse(render_json(receipt));
  EXPECT_EQ(json.at("chosen").at("worker_id").as_string(), "2");
  EXPECT_EQ(json.at("candidates").as_array().size(), 2U);
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

TEST(RouterService, CountsDecisionsRefusalsAndEvents) {
  const SimClock clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = RouterService::create({}, clock, metrics, receipts);
  ASSERT_TRUE(service.has_value());
  const Prompt prompt(32);
  EXPECT_FALSE((*service)->route(prompt.request()).has_value());
  (*service)->add_worker(kA);
  (*service)->apply(kA, prompt.stored());
  EXPECT_TRUE((*service)->route(prompt.request()).has_value());
  EXPECT_EQ((*service)->active_requests(), 0);
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("stator_router_decisions_total 1\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_refusals_total 1\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_overlap_blocks_total 2\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "dynamo_component_kv_cache_events_applied{event_type=\"stored\",status=\"ok\"} 1\n"));
  EXPECT_EQ(receipts.find("last")->request_id, "r1");
}

}  // namespace
}  // namespace stator::router
