// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// A fleet of idle workers; tests change single numbers and ask a policy.
class PoliciesTest : public ::testing::Test {
 protected:
  explicit PoliciesTest(size_t count = 4) {
    for (uint32_t i = 0; i < count; ++i) {
      workers_.push_back({.key = {WorkerId(100 + i), 0}, .slot = i});
      rows_.push_back(i);
      key_hashes_.push_back(WorkerTable::hash_of(workers_.back().key));
    }
    load_.resize(count);
    overlap_.resize(count);
    held_.resize(count);
    rates_.resize(count);
    kv_blocks_.resize(count);
    costs_.resize(count);
    request_.shape = {.prompt_tokens = 160, .block_size = 16};
    request_.prompt_blocks = 10;
  }
  size_t choose(Policy& policy) {
    return policy
        .choose({.request = request_,
                 .workers = workers_,
                 .rows = rows_,
                 .kv_blocks = kv_blocks_,
                 .key_hashes = key_hashes_,
                 .load = load_,
                 .overlap_blocks = overlap_,
                 .lower_tiers = lower_tiers_,
                 .held_blocks = held_,
                 .rates = rates_,
                 .taint_factors = factors_,
                 .costs = costs_},
                random_)
        .row;
  }
  size_t choose(std::string_view name) { return choose(*find_policy(name)->make()); }

  std::vector<WorkerTable::Worker> workers_;
  std::vector<uint32_t> rows_;
  std::vector<uint32_t> kv_blocks_;
  std::vector<uint64_t> key_hashes_;
  std::vector<LoadRow> load_;
  std::vector<uint32_t> overlap_;
  std::vector<LowerTiers> lower_tiers_;
  std::vector<uint32_t> held_;
  std::vector<WorkerRates::Rates> rates_;
  std::vector<double> factors_;
  std::vector<double> costs_;
  PolicyRequest request_;
  Random random_{7};
};

TEST_F(PoliciesTest, EveryPolicyChoosesAmongTheEligible) {
  for (const std::string& name : policy_names()) {
    const auto policy = find_policy(name)->make();
    for (int i = 0; i < 50; ++i) {
      EXPECT_LT(choose(*policy), rows_.size()) << name;
    }
  }
  EXPECT_EQ(find_policy("psychic"), nullptr);
}

TEST_F(PoliciesTest, KvCountsBlocksInUseOnce) {
  for (LoadRow& row : load_) {
    row.active_blocks = 20;
  }
  held_[2] = 5;
  EXPECT_EQ(choose("kv"), 2U);
  EXPECT_EQ(costs_[2], 10 + 20 + 5);
}

TEST_F(PoliciesTest, BlocksInSlowerTiersAreWorthLess) {
  overlap_ = {0, 2, 0, 2};
  lower_tiers_ = {{.host_blocks = 2}, {}, {.disk_blocks = 2}, {.host_blocks = 4}};
  EXPECT_EQ(choose("kv"), 3U);
  EXPECT_EQ(costs_[0], 10 + 10 - 1.5);
  EXPECT_EQ(costs_[1], 10 + 10 - 2);
  EXPECT_EQ(costs_[2], 10 + 10 - 0.5);
  EXPECT_EQ(choose("lmetric"), 3U);
}

TEST_F(PoliciesTest, KvFollowsPreferredTaints) {
  factors_ = {1, 1, 1, 0.515};
  EXPECT_EQ(choose("kv"), 3U);
}

TEST_F(PoliciesTest, DeviceAwareFillsAcceleratorsByTheirWeight) {
  workers_[0].facts.accelerated = false;
  workers_[1].facts.accelerated = false;
  // Two accelerators count as 16 CPUs: 8 requests on them weigh as much as one on the two CPUs.
  load_[0].active_requests = 1;
  load_[2].active_requests = 4;
  load_[3].active_requests = 3;
  EXPECT_EQ(choose("device_aware_weighted"), 3U);
  load_[3].active_requests = 5;
  EXPECT_EQ(choose("device_aware_weighted"), 1U);
  workers_[2].facts.accelerated = workers_[3].facts.accelerated = false;
  EXPECT_EQ(choose("device_aware_weighted"), 1U) << "a fleet without accelerators";
}

TEST_F(PoliciesTest, PowerOfTwoNeverTakesTheBusiest) {
  const auto policy = find_policy("power_of_two")->make();
  load_[1].active_requests = 9;
  for (int i = 0; i < 200; ++i) {
    EXPECT_NE(choose(*policy), 1U);
  }
}

TEST_F(PoliciesTest, PredictedLatencyPrefersTheFasterWorker) {
  rates_[3].ttft_ms_per_token = 0.01F;
  EXPECT_EQ(choose("predicted_latency"), 3U);
  load_[3].prefill_tokens = 100'000;
  EXPECT_NE(choose("predicted_latency"), 3U) << "its queue is longer than its speed is worth";
}

TEST_F(PoliciesTest, PredictedLatencySparesThoseWhoRun) {
  for (const size_t i : {0U, 1U, 2U}) {
    load_[i].active_requests = 30;
  }
  overlap_[0] = 1;
  EXPECT_EQ(choose("predicted_latency"), 3U);
}

TEST_F(PoliciesTest, PredictedLatencyAvoidsAFullWorker) {
  overlap_[0] = 2;
  EXPECT_EQ(choose("predicted_latency"), 0U);
  kv_blocks_[0] = 100;
  load_[0].active_blocks = 98;
  EXPECT_NE(choose("predicted_latency"), 0U);
}

TEST_F(PoliciesTest, PredictedLatencyAddsUpWhatEverybodyWaits) {
  for (WorkerRates::Rates& rates : rates_) {
    rates.ttft_ms_per_token = 0.5;
  }
  overlap_[1] = 4;  // of 10 blocks of 16 tokens
  held_[1] = 3;
  load_[1] = {.prefill_tokens = 200, .active_blocks = 13, .active_requests = 2};
  choose("predicted_latency");
  // 200 + 96 to its first token, a tenth of: 2 · 96 of the others' and 0.3 of the 20 blocks in use.
  EXPECT_NEAR(costs_[1], 0.5 * (200 + 96 + 0.1 * (2 * 96 + 0.3 * 20 * 16)), 1e-9);

  request_.expected_output_tokens = 400;  // the memory is held for twice as long
  choose("predicted_latency");
  EXPECT_NEAR(costs_[1], 0.5 * (200 + 96 + 0.1 * (2 * 96 + 0.6 * 20 * 16)), 1e-9);
}

TEST_F(PoliciesTest, PredictedLatencyObeysTheRequestsOverrides) {
  overlap_[1] = 10;
  EXPECT_EQ(choose("predicted_latency"), 1U);
  request_.cost.overlap_credit = 0;  // caches do not count
  load_[1].active_requests = 1;
  EXPECT_NE(choose("predicted_latency"), 1U);
  request_.cost.overlap_credit = 1;
  request_.cost.prefill_load_scale = 0;  // nor does work to come
  request_.cost.residents_weight = 0;
  request_.cost.active_request_weight = 1;
  EXPECT_NE(choose("predicted_latency"), 1U) << "one running request is the only difference";
}

TEST_F(PoliciesTest, PredictedLatencyOfAPromptComputedElsewhereIsWhatItOccupies) {
  request_.shape.track_prefill = false;
  overlap_[1] = 10;
  load_[1].active_blocks = 40;
  EXPECT_NE(choose("predicted_latency"), 1U);
  EXPECT_NEAR(costs_[1] / costs_[0], 5, 1e-9) << "50 blocks against 10";
}

TEST_F(PoliciesTest, LmetricMultipliesWorkByBatch) {
  load_ = {{.active_requests = 3}, {.prefill_tokens = 500}, {.active_requests = 9}, {}};
  load_[3].prefill_tokens = 2000;
  EXPECT_EQ(choose("lmetric"), 0U) << "161·4 beats 661·1, 161·10 and 2161·1";
  EXPECT_EQ(costs_[0], 644);
}

TEST_F(PoliciesTest, DualMapGivesEveryPrefixTwoHomes) {
  const auto policy = find_policy("dual_map")->make();
  std::set<size_t> all;
  for (uint64_t prefix = 0; prefix < 100; ++prefix) {
    const std::vector<blocks::SequenceHash> sequences = {blocks::SequenceHash(mix64(prefix))};
    request_.sequences = sequences;
    std::set<size_t> homes;
    for (int i = 0; i < 20; ++i) {
      const size_t home = choose(*policy);
      homes.insert(home);
      load_[home].prefill_tokens += 1;  // the other one is the sooner next time
    }
    EXPECT_LE(homes.size(), 2U);
    all.insert(homes.begin(), homes.end());
  }
  EXPECT_EQ(all.size(), rows_.size()) << "prefixes spread over all workers";
}

TEST_F(PoliciesTest, DualMapLeavesTheHomesOfAHotPrefix) {
  const std::vector<blocks::SequenceHash> sequences = {blocks::SequenceHash(1)};
  request_.sequences = sequences;
  const size_t home = choose("dual_map");
  for (LoadRow& row : load_) {
    row.prefill_tokens = 1'000'000;
  }
  size_t relief = (home + 1) % rows_.size();
  load_[relief].prefill_tokens = 30'000;
  EXPECT_EQ(choose("dual_map"), relief);
}

TEST_F(PoliciesTest, SloKeepsAPrefixWhereItIsWhileThatIsSoonEnough) {
  request_.shape.prompt_tokens = 1600;
  request_.prompt_blocks = 100;
  request_.cost.ttft_target_ms = 200;
  for (WorkerRates::Rates& rates : rates_) {
    rates = {.ttft_base_ms = 0, .ttft_ms_per_token = 0.125};
  }
  overlap_[2] = 90;                // 20 ms of prefill are left, 200 elsewhere
  load_[2].prefill_tokens = 1400;  // and 175 ms wait there
  EXPECT_EQ(choose("slo"), 2U);
  EXPECT_DOUBLE_EQ(costs_[2], 20);
  load_[2].prefill_tokens = 1500;  // too late: the prefix is computed elsewhere, too
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(choose("slo"), 2U);
  }
}

TEST_F(PoliciesTest, SloTakesTheSoonestWhenNobodyIsInTime) {
  request_.cost.ttft_target_ms = 1;
  for (size_t i = 0; i < rates_.size(); ++i) {
    rates_[i] = {.ttft_base_ms = 100.0F - static_cast<float>(i), .ttft_ms_per_token = 0.125};
  }
  EXPECT_EQ(choose("slo"), 3U);
  load_[3].prefill_tokens = 1000;
  EXPECT_EQ(choose("slo"), 2U);
}

}  // namespace
}  // namespace stator::router
