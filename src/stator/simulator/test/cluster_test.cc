// SPDX-License-Identifier: Apache-2.0
#include "stator/simulator/cluster.h"

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

Simulated simulate(const ClusterConfig& config, std::vector<TraceRequest> requests) {
  const perf::PolynomialTiming timing;
  ListTrace trace(std::move(requests));
  auto cluster = Cluster::create(config, timing);
  EXPECT_TRUE(cluster.has_value());
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

TEST(Cluster, RefusesConfigurationsThatMakeNoSense) {
  const perf::PolynomialTiming timing;
  EXPECT_FALSE(Cluster::create({.workers = 0}, timing).has_value());
  EXPECT_FALSE(Cluster::create({.workers = 0, .prefill_workers = 2}, timing).has_value());
  EXPECT_FALSE(Cluster::create({.arrival_speedup = 0}, timing).has_value());
  EXPECT_FALSE(Cluster::create(small_fleet("nonsense"), timing).has_value());
  EXPECT_FALSE(Cluster::create({.handoff_bytes_per_second = 0}, timing).has_value());
}

}  // namespace
}  // namespace stator::simulator
