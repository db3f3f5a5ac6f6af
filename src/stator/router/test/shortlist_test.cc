// SPDX-License-Identifier: Apache-2.0
// A large fleet's decisions against the same policy pricing every worker.
#include "stator/router/shortlist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "stator/router/router.h"

namespace stator::router {
namespace {

constexpr uint32_t kBlockSize = 16;
constexpr uint64_t kWorkers = 400;

std::vector<TokenId> tokens_of(uint64_t family, uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<TokenId>(mix64(family * 1'000'003 + i) % 50'000);
  }
  return tokens;
}

/// A fleet that is used for a while, and what is known of it from the outside.
class Fleet {
 public:
  Fleet(const char* mode, uint64_t seed) : random_(seed) {
    RouterConfig config{.mode = mode};
    config.cost.active_request_weight = random_.below(2) == 0 ? 0 : 3;
    router_ = *Router::create(config, LoadBook::make(clock_), Random(seed));
    for (uint64_t w = 1; w <= kWorkers; ++w) {
      // Some have said nothing of their memory, some have little.
      const std::array<uint32_t, 3> memories = {0, 40, 5000};
      router_->add_worker({WorkerId(w), 0}, {.total_kv_blocks = memories[random_.below(3)]});
    }
  }

  Router& router() { return *router_; }

  struct Asked {
    blocks::BlockHasher hasher{kBlockSize, blocks::hash_seed("", "")};
    RouteRequest request;
  };
  std::unique_ptr<Asked> ask() {
    auto asked = std::make_unique<Asked>();
    const auto length = static_cast<uint32_t>(1 + random_.below(1ULL << (4 + random_.below(8))));
    asked->hasher.append(tokens_of(random_.below(60), length));
    asked->request = {.request_id = "r",
                      .model = "m",
                      .prompt_tokens = length,
                      .block_size = kBlockSize,
                      .sequences = asked->hasher.sequences()};
    if (random_.below(4) == 0) {
      asked->request.expected_output_tokens = static_cast<uint32_t>(1 + random_.below(2000));
    }
    return asked;
  }

  /// Its worker caches it, its stream goes on; some others end.
  void run(const Asked& asked, Decision decision) {
    kv::BlocksStored run;
    for (size_t i = 0; i < asked.hasher.locals().size(); ++i) {
      run.blocks.push_back(
          {blocks::ExternalHash(asked.hasher.sequences()[i].value()), asked.hasher.locals()[i]});
    }
    if (!run.blocks.empty() && random_.below(3) == 0) {
      router_->apply(decision.worker, {.event_id = 1, .data = std::move(run)});
    }
    // Some workers are three times as slow.
    clock_.advance(std::chrono::microseconds(random_.below(200)));
    const bool slow = decision.worker.worker.value() % 7 == 0;
    clock_.advance(std::chrono::microseconds(slow ? 3000 : 1000));
    if (random_.below(3) != 0) {
      decision.lease.mark_prefill_completed();
      decision.lease.add_output_tokens(static_cast<uint32_t>(random_.below(100)));
    }
    running_.push_back(std::move(decision.lease));
    while (running_.size() > 1200 || (!running_.empty() && random_.below(3) == 0)) {
      const size_t at = random_.below(running_.size());
      running_[at] = std::move(running_.back());
      running_.pop_back();
    }
    if (random_.below(50) == 0) {
      const WorkerKey worker{WorkerId(1 + random_.below(kWorkers)), 0};
      random_.below(2) == 0 ? router_->set_draining(worker, random_.below(2) == 0)
                            : router_->remove_worker(worker);
      router_->add_worker({WorkerId(1 + random_.below(kWorkers)), 0}, {.total_kv_blocks = 300});
    }
  }

 private:
  SimClock clock_;
  Random random_;
  std::unique_ptr<Router> router_;
  std::vector<LoadLease> running_;
};

class ShortlistTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ShortlistTest, DecidesAsIfEveryWorkerWerePriced) {
  for (const uint64_t seed : {1ULL, 2ULL}) {
    Fleet fleet(GetParam(), seed);
    for (int step = 0; step < 1500; ++step) {
      const auto asked = fleet.ask();
      ASSERT_TRUE(fleet.router().consider(asked->request));
      std::vector<double> costs;
      uint32_t best_overlap = 0;
      for (const Router::Priced& each : fleet.router().price(asked->request)) {
        costs.push_back(each.cost);
        best_overlap = std::max(best_overlap, each.selection.overlap_blocks);
      }
      std::ranges::sort(costs);
      ASSERT_TRUE(fleet.router().consider(asked->request));
      Decision decision = fleet.router().decide(asked->request, {});
      const Receipt& receipt = decision.receipt;
      ASSERT_EQ(receipt.candidates.size(), kReceiptCandidatesMax);
      for (size_t i = 0; i < receipt.candidates.size(); ++i) {
        ASSERT_DOUBLE_EQ(receipt.candidates[i].cost, costs[i])
            << GetParam() << ", seed " << seed << ", step " << step << ", candidate " << i;
      }
      ASSERT_EQ(receipt.best_overlap_blocks, find_policy(GetParam())->make()->needs().overlap
                                                 ? best_overlap
                                                 : receipt.best_overlap_blocks);
      ASSERT_EQ(receipt.eligible, costs.size());
      fleet.run(*asked, std::move(decision));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ShortlistTest,
                         ::testing::Values("kv", "predicted_latency", "lmetric", "slo",
                                           "least_loaded"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Shortlist, TiesOfManyIdleWorkersAreBrokenEvenly) {
  const SimClock clock;
  const auto router = *Router::create({.mode = "kv"}, LoadBook::make(clock), Random(3));
  for (uint64_t w = 1; w <= kWorkers; ++w) {
    router->add_worker({WorkerId(w), 0});
  }
  std::map<WorkerKey, int> chosen;
  constexpr int kDecisions = 20'000;
  for (int i = 0; i < kDecisions; ++i) {
    ++chosen[router->route({.prompt_tokens = 10}, {})->worker];  // its load is given back at once
  }
  double chi_square = 0;
  constexpr double kExpected = static_cast<double>(kDecisions) / kWorkers;
  for (uint64_t w = 1; w <= kWorkers; ++w) {
    const double off = chosen[{WorkerId(w), 0}] - kExpected;
    chi_square += off * off / kExpected;
  }
  EXPECT_LT(chi_square, kWorkers + 5 * std::sqrt(2.0 * kWorkers)) << "five standard deviations";
  EXPECT_GT(chosen.size(), kWorkers * 9 / 10);
}

TEST(Shortlist, WithStaleLoadsDecisionsSpreadAsInSmallFleets) {
  const SimClock clock;
  const auto router = *Router::create({.mode = "kv"}, LoadBook::make(clock), Random(3));
  for (uint64_t w = 1; w <= kWorkers; ++w) {
    router->add_worker({WorkerId(w), 0});
  }
  router->set_load_stale(true);
  std::vector<Decision> running;
  for (uint64_t i = 0; i < kWorkers * 3; ++i) {
    running.push_back(std::move(*router->route({.prompt_tokens = 160}, {})));
  }
  std::map<WorkerKey, int> requests;
  for (const Decision& decision : running) {
    ++requests[decision.worker];
  }
  EXPECT_GT(requests.size(), kWorkers * 9 / 10);
}

}  // namespace
}  // namespace stator::router
