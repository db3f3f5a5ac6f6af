// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "stator/router/router_service.h"

namespace stator::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};
constexpr WallTime kNow{};

// Time stands still for all of these.
const SimClock& clock() {
  static const SimClock clock;
  return clock;
}

std::unique_ptr<Router> make_router(const std::string& mode, RouterConfig config = {}) {
  config.mode = mode;
  auto router = Router::create(config, LoadBook::make(clock()), Random(9));
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

/// For requests that outlive the statement that makes them: they only point at their prompt.
const Prompt& prompt_of(uint32_t count) {
  static std::map<uint32_t, Prompt> prompts;
  return prompts.try_emplace(count, count).first->second;
}

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
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = RouterService::create({}, "m", sim_clock, metrics, receipts);
  ASSERT_TRUE(service.has_value());
  const Prompt prompt(32);
  EXPECT_FALSE((*service)->route(prompt.request()).has_value());
  (*service)->add_worker(kA);
  (*service)->apply(kA, prompt.stored());
  EXPECT_TRUE((*service)->route(prompt.request()).has_value());
  EXPECT_EQ((*service)->active_requests(), 0);
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("stator_router_decisions_total 1\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_refusals_total{reason=\"no_workers\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_overlap_blocks_total 2\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "dynamo_component_kv_cache_events_applied{event_type=\"stored\",status=\"ok\"} 1\n"));
  EXPECT_EQ(receipts.find("last")->request_id, "r1");
}

TEST(RouterService, ShowsAWorkersLoadWhileItIsThere) {
  SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = *RouterService::create({}, "m", sim_clock, metrics, receipts);
  service->add_worker(kA, {});
  service->add_worker(kA, {});
  const Prompt prompt(160);
  auto decision = service->route(prompt.request());
  ASSERT_TRUE(decision.has_value());
  constexpr const char* kLabels = R"({model="m",worker_id="1",dp_rank="0",worker_type="decode"} )";
  std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr(std::string("worker_active_prefill_tokens") + kLabels + "160\n"));
  EXPECT_THAT(text, HasSubstr(std::string("worker_active_decode_blocks") + kLabels + "10\n"));
  EXPECT_THAT(text, HasSubstr("dynamo_component_router_worker_registered{model=\"m\"} 1\n"));

  sim_clock.advance(std::chrono::milliseconds(300));
  decision->lease.mark_prefill_completed();
  sim_clock.advance(std::chrono::milliseconds(170));
  decision->lease.add_output_tokens(17);
  decision->lease.release();
  text = metrics.render();
  EXPECT_THAT(text, HasSubstr("dynamo_component_router_time_to_first_token_seconds_sum 0.3\n"));
  EXPECT_THAT(text, HasSubstr("dynamo_component_router_output_sequence_tokens_sum 17\n"));
  EXPECT_THAT(text, HasSubstr("dynamo_component_router_inter_token_latency_seconds_count 1\n"));

  service->remove_worker(kA);
  EXPECT_THAT(metrics.render(), Not(HasSubstr("worker_id=")));
  service->add_worker(kB, {});
  service.reset();
  EXPECT_THAT(metrics.render(), Not(HasSubstr("worker_id=")));
}

TEST(RouterService, RoutesToRanksEachWithACacheAndALoadOfItsOwn) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = *RouterService::create({.mode = "kv"}, "m", sim_clock, metrics, receipts);
  service->add_worker(kA, {.dp_size = 3});
  EXPECT_EQ(service->worker_count(), 3U);
  const Prompt prompt(160);
  service->apply({kA.worker, 2}, prompt.stored());
  service->apply({kA.worker, 3}, prompt.stored());  // nobody announced it

  auto first = service->route(prompt.request());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->worker, (WorkerKey{kA.worker, 2}));
  EXPECT_EQ(first->overlap_blocks, 10U);
  EXPECT_THAT(
      metrics.render(),
      HasSubstr(R"(decode_blocks{model="m",worker_id="1",dp_rank="2",worker_type="decode"} 10)"));
  EXPECT_THAT(metrics.render(), HasSubstr(R"({event_type="stored",status="unknown_worker"} 1)"));

  service->clear_worker(kA.worker);
  RouteRequest unlike = prompt.request();
  unlike.override.assume_kv_reuse = false;  // the first one's blocks are of no use to it
  auto second = service->route(unlike);
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second->worker, first->worker) << "another rank is idle";
  EXPECT_EQ(second->overlap_blocks, 0U);

  service->set_draining(kA, true);
  EXPECT_FALSE(service->route(prompt.request()).has_value());
  service->remove_worker(kA);
  EXPECT_EQ(service->worker_count(), 0U);
}

TEST(RouterService, WhatAnotherRouterSentToASilentWorkerIsGuessedHereToo) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = *RouterService::create({.mode = "kv"}, "m", sim_clock, metrics, receipts);
  service->add_worker(kA, {.kv_events = false});
  service->add_worker(kB, {.kv_events = false});
  const Prompt prompt(160);
  const RouteRequest request = prompt.request();

  service
      ->book_for_replica({.worker = kB,
                          .prompt_tokens = 160,
                          .sequences = {request.sequences.begin(), request.sequences.end()}})
      .reset();

  auto decision = service->route(request);
  ASSERT_TRUE(decision.has_value());
  EXPECT_EQ(decision->worker, kB);
  EXPECT_EQ(decision->overlap_blocks, 10U);
}

/// Keeps the questions; answers when told to.
class LaterAdvisor final : public Advisor {
 public:
  void advise(const RouteRequest&, Answer answer) override { asked.push_back(std::move(answer)); }
  std::vector<Answer> asked;
};

/// Counts what a router elsewhere is told.
class CountingBooking final : public RemoteBooking {
 public:
  CountingBooking(int& completed, int& ended) : completed_(completed), ended_(ended) {}
  ~CountingBooking() override { ++ended_; }
  void prefill_completed() noexcept override { ++completed_; }

 private:
  int& completed_;
  int& ended_;
};

struct AdvisedRouter {
  explicit AdvisedRouter(const RouterConfig& config = {.mode = "kv"})
      : service(*RouterService::create(config, "m", clock, metrics, receipts)) {
    service->advise_by(advisor);
    service->add_worker(kA);
    service->add_worker(kB);
  }
  QueueTicket ask() {
    auto routed = service->route_or_wait(prompt.request(), {}, [this](Result<Decision> decision) {
      delivered.push_back(std::move(decision));
    });
    EXPECT_TRUE(routed.has_value());
    EXPECT_FALSE(routed->decision.has_value());
    return std::move(routed->ticket);
  }
  uint64_t count(const char* outcome) {
    return metrics.counter("stator_router_remote_decisions_total", "", {{"outcome", outcome}})
        .value();
  }

  SimClock clock;
  Metrics metrics;
  ReceiptLog receipts;
  Prompt prompt{160};
  std::shared_ptr<LaterAdvisor> advisor = std::make_shared<LaterAdvisor>();
  std::shared_ptr<RouterService> service;
  std::vector<Result<Decision>> delivered;
};

TEST(RouterService, FollowsAnAdvisorAndEndsItsBookingWithTheRequest) {
  AdvisedRouter test;
  int completed = 0;
  int ended = 0;
  const QueueTicket ticket = test.ask();
  ASSERT_EQ(test.advisor->asked.size(), 1U);
  test.advisor->asked[0](Advice{.worker = kB,
                                .overlap_blocks = 4,
                                .booking = std::make_unique<CountingBooking>(completed, ended)});

  ASSERT_EQ(test.delivered.size(), 1U);
  ASSERT_TRUE(test.delivered[0].has_value());
  EXPECT_EQ(test.delivered[0]->worker, kB);
  EXPECT_EQ(test.delivered[0]->overlap_blocks, 4U);
  EXPECT_EQ(test.receipts.find("last")->reason, "chosen by the router that was asked");
  EXPECT_EQ(test.service->active_requests(), 1);
  test.delivered[0]->lease.mark_prefill_completed();
  EXPECT_EQ(completed, 1);
  EXPECT_EQ(ended, 0);
  test.delivered.clear();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(test.service->active_requests(), 0);
  EXPECT_EQ(test.count("followed"), 1U);
}

TEST(RouterService, DecidesItselfWhereAdviceIsMissingOrOfNoUse) {
  AdvisedRouter test;
  int completed = 0;
  int ended = 0;
  const QueueTicket silent = test.ask();
  test.advisor->asked.back()(std::nullopt);
  const QueueTicket wrong = test.ask();
  test.advisor->asked.back()(Advice{
      .worker = {WorkerId(99), 0}, .booking = std::make_unique<CountingBooking>(completed, ended)});

  ASSERT_EQ(test.delivered.size(), 2U);
  EXPECT_TRUE(test.delivered[0].has_value());
  EXPECT_TRUE(test.delivered[1].has_value());
  EXPECT_EQ(ended, 1) << "what was booked for nothing ends at once";
  EXPECT_EQ(test.count("silent"), 1U);
  EXPECT_EQ(test.count("unusable"), 1U);

  RouteRequest pinned = test.prompt.request();
  pinned.constraints.pinned = kA.worker;
  auto routed = test.service->route_or_wait(pinned, {}, {});
  ASSERT_TRUE(routed.has_value());
  EXPECT_TRUE(routed->decision.has_value()) << "nobody is asked where the request decides";
  EXPECT_EQ(test.advisor->asked.size(), 2U);
}

TEST(RouterService, AClientThatLeavesWhileAnAdvisorThinksEndsWhatWasBooked) {
  AdvisedRouter test;
  int completed = 0;
  int ended = 0;
  {
    const QueueTicket ticket = test.ask();
  }
  test.advisor->asked[0](
      Advice{.worker = kB, .booking = std::make_unique<CountingBooking>(completed, ended)});

  EXPECT_TRUE(test.delivered.empty());
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(test.service->active_requests(), 0);
}

TEST(RouterService, WithoutAdviceARequestMayWaitForAWorkerAndLeave) {
  AdvisedRouter test({.mode = "kv", .wait = {.prefill_tokens = 0}});
  std::vector<Result<Decision>> running;
  for (const WorkerKey worker : {kA, kB}) {
    RouteRequest request = test.prompt.request();
    request.constraints.pinned = worker.worker;
    running.push_back(test.service->route(request));
  }
  QueueTicket leaves = test.ask();
  const QueueTicket stays = test.ask();
  test.advisor->asked[0](std::nullopt);
  test.advisor->asked[1](std::nullopt);
  EXPECT_EQ(test.service->waiting(), 2U);
  EXPECT_TRUE(test.delivered.empty());

  leaves.cancel();
  EXPECT_EQ(test.service->waiting(), 1U);
  running[0]->lease.release();

  ASSERT_EQ(test.delivered.size(), 1U);
  EXPECT_EQ(test.delivered[0]->worker, kA);
  EXPECT_EQ(test.service->waiting(), 0U);
}

TEST(RouterService, AskingIsBounded) {
  AdvisedRouter test({.mode = "kv", .queue = {.requests_max = 1}});
  const QueueTicket ticket = test.ask();
  auto routed = test.service->route_or_wait(test.prompt.request(), {}, {});
  ASSERT_TRUE(routed.has_value());
  EXPECT_TRUE(routed->decision.has_value());
  EXPECT_EQ(test.count("too_many"), 1U);
}

TEST(RouterService, AReceiptTellsHowFarEachCandidateCanBeTrusted) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = *RouterService::create({.mode = "kv"}, "m", sim_clock, metrics, receipts);
  service->add_worker(kA);
  service->add_worker(kB, {.kv_events = false});
  const Prompt prompt(160);
  service->apply(kA, prompt.stored());
  ASSERT_TRUE(service->route(prompt.request()).has_value());

  const auto receipt = receipts.find("last");
  ASSERT_EQ(receipt->candidates.size(), 2U);
  EXPECT_EQ(receipt->candidates[0].trust, Trust::kExact);
  EXPECT_EQ(receipt->candidates[1].trust, Trust::kApproximate);
  EXPECT_THAT(render_json(*receipt), HasSubstr(R"("trust":"approximate")"));
  EXPECT_THAT(render_text(*receipt), HasSubstr("approximate"));
}

TEST(RouterService, CountsDecisionsThatPassALongerPrefixOver) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = *RouterService::create({.mode = "kv"}, "m", sim_clock, metrics, receipts);
  service->add_worker(kA, {});
  service->add_worker(kB, {});
  const Prompt prompt(160);
  service->apply(kB, prompt.stored());
  RouteRequest request = prompt.request();
  request.constraints.preferred_taints = {};
  request.override.overlap_credit = 0;
  std::vector<Result<Decision>> alive;
  while (alive.empty() || alive.back()->worker != kA) {
    alive.push_back(service->route(request));
    ASSERT_TRUE(alive.back().has_value());
    ASSERT_LT(alive.size(), 64U);
  }
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("non_max_overlap_selections_total{worker_type=\"decode\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("overlap_blocks_lost_sum{worker_type=\"decode\"} 10\n"));
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
  EXPECT_EQ(router->route(request, kNow).error().code(), Code::kUnavailable);
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

TEST(RouterService, WhoWaitsIsToldWhenAWorkerHasRoom) {
  SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  RouterConfig config;
  config.wait.prefill_fraction = 0;
  auto service = *RouterService::create(config, "m", sim_clock, metrics, receipts);
  service->add_worker(kA);
  const Prompt prompt(32);
  std::vector<Result<Decision>> told;
  const auto wait = [&] {
    return *service->route_or_wait(
        prompt.request(), {.arrival = sim_clock.now()},
        [&](Result<Decision> decision) { told.push_back(std::move(decision)); });
  };
  auto first = wait();
  ASSERT_TRUE(first.decision.has_value());
  auto second = wait();
  auto given_up = wait();
  EXPECT_FALSE(second.decision.has_value());
  EXPECT_EQ(service->waiting(), 2U);
  EXPECT_THAT(metrics.render(), HasSubstr("router_queue_pending_requests{model=\"m\","
                                          "worker_type=\"decode\",policy_class=\"default\"} 2\n"));
  given_up.ticket.cancel();
  EXPECT_EQ(service->waiting(), 1U);

  first.decision->lease.mark_prefill_completed();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0]->worker, kA);
  EXPECT_EQ(service->waiting(), 0U);

  auto third = wait();
  sim_clock.advance(std::chrono::minutes(2));
  service->tick();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[1].error().code(), Code::kOverloaded);
  EXPECT_THAT(metrics.render(), HasSubstr("reason=\"wait_limit\"} 1\n"));
  told.clear();
  first.decision.reset();
  EXPECT_EQ(service->active_requests(), 0);
}

TEST(RouterService, ThreadsWaitForEachOtherAndNobodyIsForgotten) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  RouterConfig config;
  config.wait.prefill_fraction = 0;
  auto service = *RouterService::create(config, "m", sim_clock, metrics, receipts);
  service->add_worker(kA);
  service->add_worker(kB);
  constexpr int kThreads = 4;
  constexpr int kRequests = 500;
  std::mutex mutex;
  // Of requests that waited, for any thread to end; at first both workers are busy.
  std::vector<LoadLease> came;
  for (int i = 0; i < 2; ++i) {
    came.push_back(std::move(service->route(Prompt(32).request())->lease));
  }
  std::atomic<int> told{0};
  std::atomic<int> at_once{0};
  const auto take_one = [&] {
    LoadLease lease;
    const std::lock_guard lock(mutex);
    if (!came.empty()) {
      lease = std::move(came.back());
      came.pop_back();
    }
    return lease;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Prompt prompt(32);
      std::vector<QueueTicket> tickets;
      for (int i = 0; i < kRequests; ++i) {
        auto routed =
            service->route_or_wait(prompt.request(), {.tenant = t % 2 == 0 ? "even" : "odd"},
                                   [&](Result<Decision> decision) {
                                     ASSERT_TRUE(decision.has_value());
                                     ++told;
                                     const std::lock_guard lock(mutex);
                                     came.push_back(std::move(decision->lease));
                                   });
        ASSERT_TRUE(routed.has_value());
        if (routed->decision) {
          ++at_once;
          routed->decision->lease.mark_prefill_completed();
        } else if (i % 7 == 3) {
          routed->ticket.cancel();
        } else {
          tickets.push_back(std::move(routed->ticket));
        }
        take_one().release();
      }
      while (service->waiting() > 0) {
        take_one().release();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  came.clear();
  EXPECT_EQ(service->waiting(), 0U);
  EXPECT_EQ(service->active_requests(), 0);
  EXPECT_GT(told, 0);
  EXPECT_LE(at_once + told, kThreads * kRequests);
}

TEST(RouterService, ALeaseMayEndAfterItsRouterIsGone) {
  SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  RouterConfig config;
  config.wait.prefill_fraction = 0;
  auto service = *RouterService::create(config, "m", sim_clock, metrics, receipts);
  service->add_worker(kA);
  const Prompt prompt(32);
  auto first = service->route_or_wait(prompt.request(), {}, {});
  auto second = service->route_or_wait(prompt.request(), {}, [](auto) { FAIL(); });
  service.reset();
  first->decision->lease.release();
  second->ticket.cancel();
}

}  // namespace
}  // namespace stator::router
