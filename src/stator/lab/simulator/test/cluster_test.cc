// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stator/perf/polynomial_timing.h"

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;

class ListTrace final : public TraceSource {
 public:
  explicit ListTrace(std::vector<TraceRequest> requests) : requests_(std::move(requests)) {}
  Result<bool> next(TraceRequest& request) override {
    if (at_ == requests_.size()) {
      return false;
    }
    request = requests_[at_++];
    return true;
  }
  uint32_t block_tokens() const override { return 64; }

 private:
  std::vector<TraceRequest> requests_;
  size_t at_ = 0;
};

/// Requests of conversations that grow turn by turn, at random times.
std::vector<TraceRequest> make_requests(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<TraceRequest> requests;
  Duration time{};
  for (size_t i = 0; i < count; ++i) {
    time += Duration(random.below(200'000'000));
    TraceRequest request{.line = i + 1,
                         .arrival = time,
                         .input_tokens = static_cast<uint32_t>(1 + random.below(3000)),
                         .output_tokens = static_cast<uint32_t>(1 + random.below(300))};
    const uint64_t conversation = random.below(40);
    for (uint32_t b = 0; b * 64 < request.input_tokens; ++b) {
      request.hash_ids.push_back(conversation * 1000 + b);
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Simulated {
  Report report;
  std::vector<RequestRecord> records;
};

Simulated simulate(const ClusterConfig& config, std::vector<TraceRequest> requests,
                   std::unique_ptr<Planner> planner = nullptr) {
  const perf::PolynomialTiming timing;
  ListTrace trace(std::move(requests));
  auto cluster = Cluster::create(config, timing);
  EXPECT_TRUE(cluster.has_value());
  (*cluster)->set_planner(std::move(planner));
  Simulated run;
  Recorder recorder((*cluster)->worker_count(), {},
                    [&](const RequestRecord& record) { run.records.push_back(record); });
  const Status status = (*cluster)->run(trace, recorder);
  EXPECT_TRUE(status.has_value()) << status.error().message();
  EXPECT_EQ((*cluster)->booked(), 0);
  EXPECT_EQ((*cluster)->in_flight(), 0);
  run.report = recorder.make_report();
  (*cluster)->describe(run.report);
  return run;
}

ClusterConfig small_fleet(std::string mode) {
  ClusterConfig config{.workers = 3};
  config.engine.blocks = 200;
  config.engine.max_num_batched_tokens = 1024;
  config.router.mode = std::move(mode);
  return config;
}

TEST(Cluster, EveryRequestEndsOnce) {
  const Simulated run = simulate(small_fleet("kv"), make_requests(1, 300));

  EXPECT_EQ(run.report.completed, 300);
  EXPECT_EQ(run.records.size(), 300);
  for (const RequestRecord& record : run.records) {
    EXPECT_LE(record.arrival, record.admitted);
    EXPECT_LT(record.admitted, record.first_token);
    EXPECT_LE(record.first_token, record.last_token);
    EXPECT_LT(record.cached_tokens, record.input_tokens);
  }
}

TEST(Cluster, EqualInputGivesEqualBytes) {
  const Simulated first = simulate(small_fleet("kv"), make_requests(2, 200));
  const Simulated second = simulate(small_fleet("kv"), make_requests(2, 200));

  EXPECT_EQ(render_json(first.report), render_json(second.report));
}

TEST(Cluster, KvRoutingFindsMoreInTheCachesThanRoundRobin) {
  const Simulated kv = simulate(small_fleet("kv"), make_requests(3, 300));
  const Simulated turns = simulate(small_fleet("round_robin"), make_requests(3, 300));

  EXPECT_GT(kv.report.cached_ratio, turns.report.cached_ratio * 1.1);
}

TEST(Cluster, RanksAreTargetsOfTheRouterAndWaitForEachOther) {
  ClusterConfig config = small_fleet("round_robin");
  config.workers = 1;
  config.engine.dp_size = 2;
  const std::vector<TraceRequest> requests = {
      {.line = 1, .input_tokens = 64, .output_tokens = 1, .hash_ids = {}},
      {.line = 2, .input_tokens = 1000, .output_tokens = 1, .hash_ids = {}}};
  const Simulated ranks = simulate(config, requests);
  config.workers = 2;
  config.engine.dp_size = 1;
  const Simulated workers = simulate(config, requests);

  ASSERT_EQ(ranks.records.size(), 2);
  EXPECT_EQ(ranks.records[0].first_token, ranks.records[1].first_token);
  EXPECT_EQ(ranks.report.passes, 2);
  EXPECT_NE(workers.records[0].first_token, workers.records[1].first_token);
}

TEST(Cluster, RoutersKnowWhichRankHoldsWhat) {
  ClusterConfig config = small_fleet("kv");
  config.workers = 1;
  config.engine.dp_size = 3;
  const Simulated kv = simulate(config, make_requests(3, 300));
  config.router.mode = "round_robin";
  const Simulated turns = simulate(config, make_requests(3, 300));

  EXPECT_EQ(kv.report.completed, 300);
  EXPECT_GT(kv.report.cached_ratio, turns.report.cached_ratio * 1.1);
  EXPECT_GT(kv.report.dummy_passes, 0U);
  ASSERT_EQ(kv.report.per_worker.size(), 1);
  EXPECT_LE(kv.report.per_worker[0].busy_ms, kv.report.duration_ms);
}

TEST(Cluster, HostMemoryServesWhatTheDeviceForgot) {
  ClusterConfig config = small_fleet("kv");
  const Simulated without = simulate(config, make_requests(3, 300));
  config.engine.host_blocks = 2000;
  const Simulated with = simulate(config, make_requests(3, 300));
  const Simulated again = simulate(config, make_requests(3, 300));

  EXPECT_EQ(without.report.host_cached_ratio, 0);
  EXPECT_GT(with.report.host_cached_ratio, 0.05);
  EXPECT_GT(with.report.offloaded_blocks, 100U);
  EXPECT_GT(with.report.cached_ratio, without.report.cached_ratio * 1.3);
  EXPECT_EQ(render_json(with.report), render_json(again.report));
}

TEST(Cluster, RoutersCountBlocksInHostMemory) {
  ClusterConfig config = small_fleet("kv");
  config.engine.blocks = 60;
  config.engine.host_blocks = 4000;
  const Simulated kv = simulate(config, make_requests(3, 300));
  config.router.mode = "round_robin";
  const Simulated turns = simulate(config, make_requests(3, 300));

  EXPECT_GT(kv.report.host_cached_ratio, turns.report.host_cached_ratio * 1.1);
}

TEST(Cluster, TakesTurnsInRoundRobin) {
  const Simulated run = simulate(small_fleet("round_robin"), make_requests(4, 30));

  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.worker, (record.line - 1) % 3);
  }
}

TEST(Cluster, WhatFitsNowhereIsRejectedAndCounted) {
  std::vector<TraceRequest> requests = make_requests(5, 10);
  requests[3].input_tokens = 200 * 64 + 1;
  requests[3].hash_ids.clear();

  const Simulated run = simulate(small_fleet("kv"), requests);

  EXPECT_EQ(run.report.rejected, 1);
  EXPECT_EQ(run.report.completed, 9);
  EXPECT_EQ(run.report.requests, 10);
}

TEST(Cluster, ClosedLoopKeepsItsNumberOfRequests) {
  ClusterConfig config = small_fleet("kv");
  config.concurrency = 4;

  const Simulated run = simulate(config, make_requests(6, 100));

  EXPECT_EQ(run.report.completed, 100);
  // Whoever begins, at most three others have begun and not ended.
  for (const RequestRecord& record : run.records) {
    const auto others = std::ranges::count_if(run.records, [&](const RequestRecord& other) {
      return other.arrival <= record.arrival && other.last_token > record.arrival;
    });
    EXPECT_LE(others, 4);
  }
}

TEST(Cluster, SpeedupShortensTheTimesBetweenArrivals) {
  ClusterConfig config = small_fleet("kv");
  config.arrival_speedup = 4;
  std::vector<TraceRequest> requests = make_requests(7, 20);

  const Simulated run = simulate(config, requests);

  for (const RequestRecord& record : run.records) {
    EXPECT_NEAR(static_cast<double>(record.arrival.time_since_epoch().count()) * 4,
                static_cast<double>(requests[record.line - 1].arrival.count()), 4);
  }
}

TEST(Cluster, PromptsAreHandedOverFromPrefillToDecodeWorkers) {
  ClusterConfig config = small_fleet("kv");
  config.prefill_workers = 2;
  config.handoff_bytes_per_token = 1e5;
  config.handoff_bytes_per_second = 1e9;

  const Simulated run = simulate(config, make_requests(8, 100));

  EXPECT_EQ(run.report.completed, 100);
  for (const RequestRecord& record : run.records) {
    EXPECT_LT(record.prefill_worker, 2);
    if (record.output_tokens > 1) {
      EXPECT_GE(record.worker, 2);
      EXPECT_GE(record.second_token - record.first_token,
                Duration(int64_t{100'000} * record.input_tokens));
    }
  }
}

TEST(Cluster, TurnsOfASessionFollowEachOther) {
  std::vector<TraceRequest> requests = make_requests(9, 40);
  for (TraceRequest& request : requests) {
    request.session = std::to_string(request.line % 4);
    request.delay = milliseconds(30);
  }

  const Simulated run = simulate(small_fleet("kv"), requests);

  EXPECT_EQ(run.report.completed, 40);
  for (const RequestRecord& record : run.records) {
    for (const RequestRecord& next : run.records) {
      if (next.session == record.session && next.turn == record.turn + 1) {
        EXPECT_EQ(next.arrival, record.last_token + milliseconds(30));
      }
    }
  }
}

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

TEST(Cluster, RequestsOutliveTheirWorker) {
  ClusterConfig config = small_fleet("kv");
  config.fail_at = {{at(9000), 1}};
  config.restart_after = milliseconds(5000);
  config.startup_time = milliseconds(2000);

  const Simulated run = simulate(config, make_requests(10, 200));

  EXPECT_EQ(run.report.worker_failures, 1);
  EXPECT_EQ(run.report.completed, 200);
  EXPECT_GT(run.report.migrated, 0);
  for (const RequestRecord& record : run.records) {
    const bool away = record.arrival >= at(9000) && record.arrival < at(16'000);
    EXPECT_FALSE(away && record.worker == 1) << record.line;
    EXPECT_FALSE(record.migrations > 0 && record.last_token <= at(9000)) << record.line;
    EXPECT_LE(record.first_token, record.last_token);
    if (record.output_tokens > 1) {
      EXPECT_LT(record.first_token, record.second_token) << record.line;
      EXPECT_LE(record.second_token, record.last_token) << record.line;
    }
  }
  // Seven of the seconds of one worker are not paid for.
  EXPECT_NEAR(run.report.decode_worker_seconds, 3 * run.report.duration_ms / 1000 - 5, 1);
  EXPECT_TRUE(std::ranges::any_of(run.records, [](const RequestRecord& record) {
    return record.arrival > at(16'000) && record.worker == 1;
  }));
}

TEST(Cluster, RequestsThatLoseTooManyWorkersFailAndAreCounted) {
  ClusterConfig config = small_fleet("kv");
  config.fail_at = {{at(9000), 0}, {at(9000), 1}};
  config.migration_limit = 0;

  const Simulated run = simulate(config, make_requests(10, 100));

  EXPECT_GT(run.report.lost, 0);
  EXPECT_EQ(run.report.completed + run.report.lost, 100);
  EXPECT_EQ(run.records.size(), 100);
  EXPECT_EQ(run.report.failed(), run.report.lost);
}

TEST(Cluster, WithoutWorkersEverythingIsUnroutable) {
  ClusterConfig config = small_fleet("round_robin");
  config.workers = 1;
  config.fail_at = {{at(3000), 0}};

  const Simulated run = simulate(config, make_requests(10, 100));

  EXPECT_GT(run.report.completed, 0);
  EXPECT_GT(run.report.unroutable, 50);
  EXPECT_EQ(run.report.completed + run.report.unroutable, 100);
}

TEST(Cluster, SplitFleetsOutliveDeathsOnBothSides) {
  for (const bool shared_links : {false, true}) {
    ClusterConfig config = small_fleet("kv");
    config.workers = 4;
    config.prefill_workers = 4;
    config.handoff_bytes_per_token = 1e5;
    config.handoff_bytes_per_second = 2e9;
    config.shared_links = shared_links;
    config.time_between_failures = milliseconds(10'000);
    config.restart_after = milliseconds(500);
    config.migration_limit = 1000;

    const Simulated run = simulate(config, make_requests(11, 200));

    EXPECT_GT(run.report.worker_failures, 5);
    EXPECT_GT(run.report.migrated, 5);
    EXPECT_EQ(run.records.size(), 200);
    EXPECT_EQ(run.report.completed + run.report.unroutable, 200);
    EXPECT_GT(run.report.completed, 150);
  }
}

TEST(Cluster, SharedLinksMakeHandOversWait) {
  ClusterConfig config = small_fleet("round_robin");
  config.prefill_workers = 1;
  config.engine.blocks = 4000;
  config.handoff_bytes_per_token = 1e6;
  config.handoff_bytes_per_second = 4e9;
  const auto second_token = [&](bool shared_links) {
    config.shared_links = shared_links;
    return simulate(config, make_requests(12, 60)).report.ttst_ms.mean;
  };

  EXPECT_GT(second_token(true), 1.5 * second_token(false));
}

TEST(Cluster, RequestsWaitInTheRouterWhileAllWorkersAreBusy) {
  ClusterConfig config = small_fleet("kv");
  config.router.wait.prefill_tokens = 500;
  config.router.queue.wait_max = {};
  std::vector<TraceRequest> requests = make_requests(13, 100);
  for (TraceRequest& request : requests) {
    request.arrival /= 20;
  }

  const Simulated patient = simulate(config, requests);
  config.router.queue.requests_max = 2;
  const Simulated short_queue = simulate(config, requests);
  config.router.queue.requests_max = 4096;
  config.router.queue.wait_max = milliseconds(300);
  const Simulated short_wait = simulate(config, requests);

  EXPECT_EQ(patient.report.completed, 100);
  EXPECT_TRUE(std::ranges::any_of(patient.report.timeline,
                                  [](const TimelinePoint& point) { return point.queued > 1; }));
  EXPECT_GT(short_queue.report.shed, 0);
  EXPECT_EQ(short_queue.report.completed + short_queue.report.shed, 100);
  EXPECT_GT(short_wait.report.shed, 0);
  EXPECT_EQ(short_wait.report.completed + short_wait.report.shed, 100);
}

TEST(Cluster, UnderOverloadTheLowestPrioritiesAreShedFirst) {
  constexpr std::array<int32_t, 4> kTiers = {-1, 0, 1, 3};
  ClusterConfig config = small_fleet("kv");
  config.router.reject.prefill_tokens = 4000;
  std::vector<TraceRequest> requests = make_requests(13, 2000);
  for (size_t i = 0; i < requests.size(); ++i) {
    const int32_t tier = kTiers[i % kTiers.size()];
    requests[i].priority = std::min(tier, 0);
    requests[i].strict_priority = static_cast<uint32_t>(std::max(tier, 0));
  }

  const Simulated run = simulate(config, requests);

  std::array<size_t, kTiers.size()> shed{};
  for (const RequestRecord& record : run.records) {
    shed[(record.line - 1) % kTiers.size()] += record.status == RequestStatus::kShed ? 1 : 0;
  }
  EXPECT_GT(shed[0], shed[1]);
  EXPECT_GT(shed[1], shed[2]);
  EXPECT_GT(shed[2], shed[3]);
  const size_t each = requests.size() / kTiers.size();
  EXPECT_LT(shed[3], each / 6) << "the highest hardly notices";
  EXPECT_GT(shed[0], each * 3 / 4) << "the load was no overload";
}

TEST(Cluster, FollowsThePlanner) {
  ClusterConfig config = small_fleet("round_robin");
  config.startup_time = milliseconds(1000);
  const Simulated run = simulate(config, make_requests(14, 200),
                                 make_scripted_planner({}, {{at(5000), 5}, {at(10'000), 1}}));

  EXPECT_EQ(run.report.completed, 200);
  for (const RequestRecord& record : run.records) {
    if (record.arrival < at(6000)) {
      EXPECT_LT(record.worker, 3) << record.line;
    }
    if (record.arrival >= at(10'000)) {
      EXPECT_EQ(record.worker, 0) << record.line;
    }
  }
  EXPECT_TRUE(std::ranges::any_of(run.records,
                                  [](const RequestRecord& record) { return record.worker == 4; }));
  EXPECT_NEAR(run.report.timeline.back().workers, 1, 1e-9);
  EXPECT_LT(run.report.decode_worker_seconds, 3 * run.report.duration_ms / 1000);
}

TEST(Cluster, RefusesConfigurationsThatMakeNoSense) {
  const perf::PolynomialTiming timing;
  EXPECT_FALSE(Cluster::create({.workers = 0}, timing).has_value());
  EXPECT_FALSE(Cluster::create({.workers = 0, .prefill_workers = 2}, timing).has_value());
  EXPECT_FALSE(Cluster::create({.arrival_speedup = 0}, timing).has_value());
  EXPECT_FALSE(Cluster::create(small_fleet("nonsense"), timing).has_value());
  EXPECT_FALSE(Cluster::create({.handoff_bytes_per_second = 0}, timing).has_value());
  EXPECT_FALSE(Cluster::create({.startup_time = milliseconds(-1)}, timing).has_value());
  EXPECT_FALSE(Cluster::create({.fail_at = {{TimePoint(), 1}}}, timing).has_value());
}

}  // namespace
}  // namespace stator::simulator
