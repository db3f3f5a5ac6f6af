// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "stator/router/index/index_service.h"
#include "stator/router/test/router_fixture.h"

namespace stator::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<kv::KvEvent> kAllCleared = {
    {.dp_rank = IndexService::kAllRanks, .data = kv::AllCleared{}}};

TEST(RouterService, CountsDecisionsRefusalsAndEvents) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = RouterService::create({}, "m", sim_clock, metrics, receipts);
  ASSERT_TRUE(service.has_value());
  const Prompt prompt(32);
  EXPECT_FALSE((*service)->route(prompt.request()).has_value());
  (*service)->add_worker(kA);
  (*service)->index().apply(kA, prompt.stored());
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

TEST(RouterService, APreviewSaysWhatWouldBeDecidedAndChangesNothing) {
  const SimClock sim_clock;
  Metrics metrics;
  ReceiptLog receipts;
  auto service = *RouterService::create({.mode = "kv"}, "m", sim_clock, metrics, receipts);
  const Prompt prompt(32);
  EXPECT_EQ(service->preview(prompt.request()).error().code(), Code::kUnavailable);
  service->add_worker(kA);
  service->add_worker(kB);
  service->index().apply(kB, prompt.stored());

  for (int i = 0; i < 3; ++i) {
    const auto receipt = service->preview(prompt.request());
    ASSERT_TRUE(receipt.has_value());
    EXPECT_EQ(receipt->chosen, kB);
    ASSERT_EQ(receipt->candidates.size(), 2U);
    EXPECT_EQ(receipt->candidates[1].overlap_blocks, 2U);
    EXPECT_EQ(receipt->candidates[1].active_requests, 0U);
    EXPECT_LT(receipt->candidates[1].cost, receipt->candidates[0].cost);
  }
  EXPECT_EQ(service->active_requests(), 0);
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("dynamo_component_router_requests_started_total 0\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_decisions_total 0\n"));
  EXPECT_FALSE(receipts.find("last").has_value());
  EXPECT_EQ(service->route(prompt.request())->worker, kB);
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
  service->index().apply({kA.worker, 2}, prompt.stored());
  service->index().apply({kA.worker, 3}, prompt.stored());  // nobody announced it

  auto first = service->route(prompt.request());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->worker, (WorkerKey{kA.worker, 2}));
  EXPECT_EQ(first->overlap_blocks, 10U);
  EXPECT_THAT(
      metrics.render(),
      HasSubstr(R"(decode_blocks{model="m",worker_id="1",dp_rank="2",worker_type="decode"} 10)"));
  EXPECT_THAT(metrics.render(), HasSubstr(R"({event_type="stored",status="unknown_worker"} 1)"));

  service->index().apply(kA.worker, kAllCleared);
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
  service->index().apply(kA, prompt.stored());
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
  service->index().apply(kB, prompt.stored());
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

/// A model whose requests wait while all of its workers compute prompts.
struct WaitingRouter {
  explicit WaitingRouter(std::initializer_list<WorkerKey> workers) {
    for (const WorkerKey worker : workers) {
      service->add_worker(worker);
    }
  }

  SimClock clock;
  Metrics metrics;
  ReceiptLog receipts;
  std::shared_ptr<RouterService> service =
      *RouterService::create({.wait = {.prefill_fraction = 0}}, "m", clock, metrics, receipts);
};

TEST(RouterService, WhoWaitsIsToldWhenAWorkerHasRoom) {
  WaitingRouter test({kA});
  const Prompt prompt(32);
  std::vector<Result<Decision>> told;
  const auto wait = [&] {
    return *test.service->route_or_wait(
        prompt.request(), {.arrival = test.clock.now()},
        [&](Result<Decision> decision) { told.push_back(std::move(decision)); });
  };
  auto first = wait();
  ASSERT_TRUE(first.decision.has_value());
  auto second = wait();
  auto given_up = wait();
  EXPECT_FALSE(second.decision.has_value());
  EXPECT_EQ(test.service->waiting(), 2U);
  EXPECT_THAT(test.metrics.render(),
              HasSubstr("router_queue_pending_requests{model=\"m\","
                        "worker_type=\"decode\",policy_class=\"default\"} 2\n"));
  given_up.ticket.cancel();
  EXPECT_EQ(test.service->waiting(), 1U);

  first.decision->lease.mark_prefill_completed();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0]->worker, kA);
  EXPECT_EQ(test.service->waiting(), 0U);

  auto third = wait();
  test.clock.advance(std::chrono::minutes(2));
  test.service->tick();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[1].error().code(), Code::kOverloaded);
  EXPECT_THAT(test.metrics.render(), HasSubstr("reason=\"wait_limit\"} 1\n"));
  told.clear();
  first.decision.reset();
  EXPECT_EQ(test.service->active_requests(), 0);
}

TEST(RouterService, ThreadsWaitForEachOtherAndNobodyIsForgotten) {
  const WaitingRouter test({kA, kB});
  constexpr int kThreads = 4;
  constexpr int kRequests = 500;
  std::mutex mutex;
  // Of requests that waited, for any thread to end; at first both workers are busy.
  std::vector<LoadLease> came;
  for (int i = 0; i < 2; ++i) {
    came.push_back(std::move(test.service->route(Prompt(32).request())->lease));
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
            test.service->route_or_wait(prompt.request(), {.tenant = t % 2 == 0 ? "even" : "odd"},
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
      while (test.service->waiting() > 0) {
        take_one().release();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  came.clear();
  EXPECT_EQ(test.service->waiting(), 0U);
  EXPECT_EQ(test.service->active_requests(), 0);
  EXPECT_GT(told, 0);
  EXPECT_LE(at_once + told, kThreads * kRequests);
}

TEST(RouterService, ALeaseMayEndAfterItsRouterIsGone) {
  WaitingRouter test({kA});
  const Prompt prompt(32);
  auto first = test.service->route_or_wait(prompt.request(), {}, {});
  auto second = test.service->route_or_wait(prompt.request(), {}, [](auto) { FAIL(); });
  test.service.reset();
  first->decision->lease.release();
  second->ticket.cancel();
}

}  // namespace
}  // namespace stator::router
