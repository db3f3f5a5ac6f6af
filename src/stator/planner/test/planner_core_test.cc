// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/planner_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stator/core/random.h"
#include "stator/perf/polynomial_timing.h"

namespace stator::planner {
namespace {

/// A fleet that does at once, or after its start-up time, what it is told.
class Fleet {
 public:
  Fleet(PlannerConfig config, uint32_t workers) : workers_(workers) {
    auto core = PlannerCore::create(config, timing_);
    core_ = std::move(*core);
  }
  /// One tick with that many requests per second of 2000 + 200 tokens.
  Decision tick(double rate) {
    const double interval = core_->interval_s();
    now_ += interval;
    for (auto it = starting_.begin(); it != starting_.end();) {
      if (*it <= now_) {
        ++workers_;
        it = starting_.erase(it);
      } else {
        ++it;
      }
    }
    Inputs inputs{.now_s = now_};
    inputs.traffic = Traffic{.duration_s = interval,
                             .requests = std::floor(rate * interval + 0.5),
                             .input_tokens = rate > 0 ? 2000.0 : 0,
                             .output_tokens = rate > 0 ? 200.0 : 0};
    inputs.decode = {.ready = workers_,
                     .expected = workers_ + static_cast<uint32_t>(starting_.size())};
    for (uint32_t i = 0; i < workers_; ++i) {
      const double running = rate / std::max(1U, workers_) * 2;
      inputs.decode.engines.push_back(
          {.id = i, .running = running, .decode_kv_tokens = running * 2100});
    }
    last_inputs = inputs;
    Decision decision = core_->tick(inputs);
    if (decision.workers) {
      const uint32_t current = inputs.decode.expected;
      for (uint32_t i = current; i < *decision.workers; ++i) {
        starting_.push_back(now_ + core_->config().start_up_s);
      }
      while (workers_ + starting_.size() > *decision.workers) {
        starting_.empty() ? static_cast<void>(--workers_) : starting_.pop_back();
      }
    }
    return decision;
  }
  uint32_t size() const { return workers_ + static_cast<uint32_t>(starting_.size()); }
  PlannerCore& core() { return *core_; }
  Inputs last_inputs;

 private:
  perf::PolynomialTiming timing_;
  std::unique_ptr<PlannerCore> core_;
  uint32_t workers_ = 1;
  std::vector<double> starting_;
  double now_ = 0;
};

PlannerConfig config_of(PolicyKind policy) {
  return {.policy = policy, .ttft_ms = 1000, .itl_ms = 30, .start_up_s = 20, .mpc_paths = 2};
}

TEST(PlannerCore, EveryPolicyFollowsLoadUpAndDown) {
  for (const PolicyKind policy :
       {PolicyKind::kMpc, PolicyKind::kThroughput, PolicyKind::kReference}) {
    Fleet fleet(config_of(policy), 1);
    const bool simulates = policy == PolicyKind::kMpc;  // which takes its time
    for (int i = 0; i < (simulates ? 60 : 240); ++i) {
      fleet.tick(40);
    }
    const uint32_t loaded = fleet.size();
    EXPECT_GT(loaded, 2U) << name_of(fleet.core().config());
    for (int i = 0; i < (simulates ? 100 : 400); ++i) {
      fleet.tick(2);
    }
    EXPECT_LT(fleet.size(), loaded) << name_of(fleet.core().config());
  }
}

TEST(PlannerCore, StaticStaysAsItIs) {
  PlannerConfig config = config_of(PolicyKind::kStatic);
  config.static_workers = 5;
  Fleet fleet(config, 5);

  EXPECT_EQ(fleet.tick(100).workers, 5U);
  EXPECT_EQ(fleet.tick(0).workers, 5U);
}

TEST(PlannerCore, BrokenMeasurementsGiveNoDecisionAndSayWhy) {
  Fleet fleet(config_of(PolicyKind::kMpc), 4);
  for (int i = 0; i < 10; ++i) {
    fleet.tick(10);
  }
  const Inputs good = fleet.last_inputs;
  const auto spoil = [&](auto&& change, std::string_view word) {
    Inputs bad = good;
    bad.now_s += 1;
    change(bad);
    const Decision decision = fleet.core().tick(bad);
    EXPECT_FALSE(decision.workers);
    EXPECT_EQ(decision.reason, "metrics_invalid");
    EXPECT_NE(decision.text.find(word), std::string::npos) << decision.text;
  };

  spoil([](Inputs& in) { in.traffic->requests = std::nan(""); }, "requests");
  spoil([](Inputs& in) { in.traffic->requests = -3; }, "reset");
  spoil([](Inputs& in) { in.traffic->input_tokens = std::numeric_limits<double>::infinity(); },
        "lengths");
  spoil([](Inputs& in) { in.decode.engines[0].running = -1; }, "engine");
  spoil([](Inputs& in) { in.broken = "the frontend does not answer"; }, "frontend");
  spoil([](Inputs& in) { in.now_s += 1e6; }, "clock");
  spoil([](Inputs& in) { in.now_s -= 100; }, "clock");
}

TEST(PlannerCore, WithoutMeasurementsTheFleetStays) {
  Fleet fleet(config_of(PolicyKind::kMpc), 4);
  Inputs inputs{.now_s = 10, .decode = {.ready = 4, .expected = 4}};
  for (int i = 0; i < 60; ++i) {
    inputs.now_s += 10;
    const Decision decision = fleet.core().tick(inputs);
    EXPECT_FALSE(decision.workers);
    EXPECT_EQ(decision.reason, "no_traffic_data");
  }
}

TEST(PlannerCore, BudgetsAreKeptAndSmallOnesRefused) {
  PlannerConfig config = config_of(PolicyKind::kMpc);
  config.gpus_per_worker = 4;
  config.max_gpu_budget = 12;
  Fleet fleet(config, 1);
  for (int i = 0; i < 30; ++i) {
    fleet.tick(100);
    EXPECT_LE(fleet.size(), 3U);
  }
  config.max_gpu_budget = 3;
  const perf::PolynomialTiming timing;
  const auto refused = PlannerCore::create(config, timing);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("4 GPUs"), std::string::npos);
  EXPECT_NE(refused.error().message().find('3'), std::string::npos);
}

TEST(PlannerCore, GoesToZeroAndComesBack) {
  PlannerConfig config = config_of(PolicyKind::kMpc);
  config.min_workers = 0;
  config.idle_before_zero_s = 60;
  Fleet fleet(config, 2);
  for (int i = 0; i < 10; ++i) {
    fleet.tick(1);
  }
  for (int i = 0; i < 60; ++i) {
    fleet.tick(0);
  }
  EXPECT_EQ(fleet.size(), 0U);

  fleet.tick(1);

  EXPECT_GE(fleet.size(), 1U);
}

TEST(PlannerCore, AJournalReplaysToTheSameBytes) {
  Fleet fleet(config_of(PolicyKind::kMpc), 2);
  std::string journal;
  Random random(3);
  for (int i = 0; i < 20; ++i) {
    const Decision decision = fleet.tick(random.uniform() * 60);
    journal += journal_line(fleet.last_inputs, decision);
  }
  const perf::PolynomialTiming timing;
  const auto core = PlannerCore::create(config_of(PolicyKind::kMpc), timing);

  const auto check = replay_journal(journal, **core);

  ASSERT_TRUE(check) << check.error().message();
  EXPECT_EQ(check->ticks, 20U);
  EXPECT_EQ(check->differences, 0U) << check->first_difference;
}

TEST(PlannerCore, MpcNeverFlapsUnderSteadyLoad) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    PlannerConfig config = config_of(PolicyKind::kMpc);
    config.seed = seed;
    Fleet fleet(config, 2);
    Random random(seed);
    const double rate = 2 + 12 * random.uniform();
    int changes = 0;
    uint32_t last = 0;
    for (int i = 0; i < 120; ++i) {
      fleet.tick(rate);
      changes += i > 40 && fleet.size() != last ? 1 : 0;
      last = fleet.size();
    }
    EXPECT_LE(changes, 2) << "seed " << seed << " rate " << rate;
  }
}

TEST(LoadRules, TwoHalfFullEnginesAreNotJoined) {
  const perf::PolynomialTiming timing;
  PlannerConfig config = config_of(PolicyKind::kLoad);
  config.itl_ms = 50;
  const EngineTiming engine(timing, config.max_kv_tokens);
  PoolState pool{.ready = 2, .expected = 2};
  for (uint64_t id = 0; id < 2; ++id) {
    pool.engines.push_back(
        {.id = id, .running = 60, .decode_kv_tokens = 0.7 * config.max_kv_tokens});
  }
  const LoadMeans means{.input_tokens = 500, .output_tokens = 200};

  EXPECT_EQ(judge_decode(pool, means, engine, config).change, 0);
  pool.expected = 3;
  EXPECT_EQ(judge_decode(pool, means, engine, config).reason, "scaling_in_progress");
  pool.expected = 2;
  pool.engines.pop_back();
  EXPECT_EQ(judge_decode(pool, means, engine, config).reason, "worker_count_mismatch");
  pool.engines.clear();
  EXPECT_EQ(judge_decode(pool, means, engine, config).reason, "no_fpm_data");
}

TEST(Capacity, GrowsWithTheGoal) {
  const perf::PolynomialTiming timing;
  const EngineTiming engine(timing, 1e6);
  CapacityQuery query{.input_tokens = 2000, .output_tokens = 200, .ttft_ms = 2000};
  double last = 0;
  for (const double itl : {25.0, 40.0, 60.0}) {
    query.itl_ms = itl;
    const Capacity capacity = find_capacity(engine, query);
    EXPECT_TRUE(capacity.eligible);
    EXPECT_GE(capacity.requests_per_s, last);
    last = capacity.requests_per_s;
  }
  query.itl_ms = 0.1;
  EXPECT_FALSE(find_capacity(engine, query).eligible);
}

}  // namespace
}  // namespace stator::planner
