// SPDX-License-Identifier: Apache-2.0
// The compressed core and the naive one lead to the same reports, byte for byte, on random fleets
// and random workloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "stator/lab/simulator/cluster.h"
#include "stator/lab/simulator/report_html.h"
#include "stator/perf/polynomial_timing.h"

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;

/// Decode time follows the context, so that no two passes take equally long.
class ContextTiming final : public perf::TimingModel {
 public:
  double prefill_ms(const perf::PassShape& shape) const override {
    return shape.prefill_requests == 0 ? 0
                                       : 3 + 0.01 * static_cast<double>(shape.prefill_new_tokens);
  }
  double decode_ms(const perf::PassShape& shape) const override {
    return shape.decode_requests == 0 ? 0
                                      : 1.37 + 0.0011 * static_cast<double>(shape.context_tokens);
  }
  bool reads_context() const override { return true; }
};

/// Requests in bursts, of conversations that share prefixes.
class RandomTrace final : public TraceSource {
 public:
  RandomTrace(uint64_t seed, uint32_t count) : random_(seed), left_(count) {
    gap_ns_ = 1 + random_.below(60'000'000);
    input_max_ = 1 + static_cast<uint32_t>(random_.below(900));
    output_max_ = 1 + static_cast<uint32_t>(random_.below(120));
    conversations_ = 1 + random_.below(12);
  }
  Result<bool> next(TraceRequest& request) override {
    if (left_-- == 0) {
      return false;
    }
    time_ += Duration(random_.below(3) == 0 ? 0 : random_.below(2 * gap_ns_));
    request = {.line = ++line_,
               .arrival = time_,
               .input_tokens = 1 + static_cast<uint32_t>(random_.below(input_max_)),
               .output_tokens = 1 + static_cast<uint32_t>(random_.below(output_max_))};
    const uint64_t conversation = random_.below(conversations_);
    const uint64_t shared = random_.below(20);
    for (uint64_t i = 0; i * block_tokens() < request.input_tokens; ++i) {
      request.hash_ids.push_back(i < shared ? conversation * 1000 + i : line_ * 1'000'000 + i);
    }
    return true;
  }
  uint32_t block_tokens() const override { return 32; }

 private:
  Random random_;
  uint32_t left_;
  uint64_t line_ = 0;
  Duration time_{};
  uint64_t gap_ns_;
  uint32_t input_max_;
  uint32_t output_max_;
  uint64_t conversations_;
};

ClusterConfig random_fleet(Random& random) {
  constexpr std::array kModes = {"kv",     "round_robin", "least_loaded",     "power_of_two",
                                 "random", "lmetric",     "predicted_latency"};
  ClusterConfig config;
  config.workers = 1 + static_cast<uint32_t>(random.below(4));
  config.prefill_workers = random.below(4) == 0 ? 1 + static_cast<uint32_t>(random.below(2)) : 0;
  config.handoff_bytes_per_token = static_cast<double>(random.below(3)) * 1e5;
  config.concurrency = random.below(4) == 0 ? 1 + static_cast<uint32_t>(random.below(12)) : 0;
  config.router.mode = kModes[random.below(kModes.size())];
  config.seed = random.next();
  config.shared_links = random.below(2) == 0;
  if (random.below(3) == 0) {  // workers die, requests wait and fleets change in size, too
    config.startup_time = milliseconds(random.below(2000));
    config.restart_after = milliseconds(random.below(3000));
    config.time_between_failures = milliseconds(200 + random.below(5000));
    config.migration_limit = static_cast<uint32_t>(random.below(4));
    config.fail_at = {{TimePoint(milliseconds(random.below(800))), 0}};
  }
  if (random.below(4) == 0) {
    config.router.wait.prefill_tokens = static_cast<double>(random.below(600));
    config.router.queue.order = random.below(2) == 0 ? "fcfs" : "wspt";
    config.router.queue.wait_max = milliseconds(random.below(3) * 400);
    config.router.queue.requests_max = 1 + static_cast<uint32_t>(random.below(40));
  }
  engine::SimEngineConfig& engine = config.engine;
  engine.rules =
      random.below(5) == 0 ? engine::SchedulingRules::kTrtllm : engine::SchedulingRules::kVllm;
  engine.block_size = 1U << random.below(7);
  engine.blocks = (1100 + static_cast<uint32_t>(random.below(1500))) / engine.block_size;
  engine.max_num_seqs = 1 + static_cast<uint32_t>(random.below(16));
  engine.max_num_batched_tokens =
      engine.max_num_seqs + static_cast<uint32_t>(random.below(random.below(2) == 0 ? 60 : 900));
  engine.max_model_len = random.below(6) == 0 ? 500 : 0;
  engine.prefix_caching = random.below(5) != 0;
  engine.chunked_prefill = random.below(5) != 0;
  engine.preemption =
      random.below(3) == 0 ? engine::SimPreemption::kOldest : engine::SimPreemption::kNewest;
  engine.speedup = random.below(3) == 0 ? 1.7 : 1;
  engine.dp_size = random.below(3) == 0 ? 2 + static_cast<uint32_t>(random.below(3)) : 1;
  return config;
}

struct Outcome {
  std::string report;
  std::string requests;
  uint64_t preemptions = 0;
  uint64_t rejected = 0;
  uint64_t migrated = 0;
  uint64_t shed = 0;
  uint64_t dummy_passes = 0;
};

/// Up and down, at times that depend on what was measured.
class RestlessPlanner final : public Planner {
 public:
  std::optional<TimePoint> first() const override { return TimePoint(milliseconds(50)); }
  ScalingDecision decide(const FleetView& fleet) override {
    const uint64_t mood = mix64(fleet.completed + fleet.decode.running * 3 + fleet.decode.waiting);
    return {.workers = 1 + static_cast<uint32_t>(mood % 4),
            .next = fleet.now + milliseconds(100 + mood % 400)};
  }
};

Outcome simulate(ClusterConfig config, engine::SimPasses passes, uint64_t trace_seed,
                 const perf::TimingModel& timing) {
  config.passes = passes;
  RandomTrace trace(trace_seed, 60);
  auto cluster = Cluster::create(config, timing);
  EXPECT_TRUE(cluster.has_value());
  if (trace_seed % 5 == 0) {
    (*cluster)->set_planner(std::make_unique<RestlessPlanner>());
  }
  Outcome outcome;
  Recorder recorder((*cluster)->worker_count(), {.ttft_ms = 50, .tpot_ms = 9},
                    [&](const RequestRecord& record) { outcome.requests += render_json(record); });
  EXPECT_TRUE((*cluster)->run(trace, recorder).has_value());
  EXPECT_EQ((*cluster)->booked(), 0);
  Report report = recorder.make_report();
  (*cluster)->describe(report);
  outcome.report = render_json(report);
  outcome.preemptions = report.preemptions;
  outcome.rejected = report.rejected;
  outcome.migrated = report.migrated;
  outcome.shed = report.shed;
  outcome.dummy_passes = report.dummy_passes;
  EXPECT_EQ(report.requests, 60);
  EXPECT_EQ(recorder.ended(), 60);
  const NamedReport named{"random", report};
  outcome.report += render_html({&named, 1});
  return outcome;
}

/// Where two texts part, for the message; empty when they do not.
std::string first_difference(const std::string& a, const std::string& b) {
  const auto parted = std::ranges::mismatch(a, b);
  if (parted.in1 == a.end() && parted.in2 == b.end()) {
    return {};
  }
  const auto line_at = [](const std::string& text, size_t at) {
    const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  const auto at = static_cast<size_t>(parted.in1 - a.begin());
  return line_at(a, at) + "\nagainst\n" + line_at(b, at);
}

TEST(CompressedCore, GivesTheReportsOfTheNaiveOneOnAThousandWorkloads) {
  const perf::PolynomialTiming polynomial;
  const ContextTiming context;
  uint64_t with_preemptions = 0;
  uint64_t with_rejections = 0;
  uint64_t with_migrations = 0;
  uint64_t with_shedding = 0;
  uint64_t with_idle_ranks = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Random random(seed);
    const ClusterConfig config = random_fleet(random);
    const perf::TimingModel& timing =
        random.below(4) == 0 ? static_cast<const perf::TimingModel&>(context) : polynomial;

    const Outcome naive = simulate(config, engine::SimPasses::kNaive, seed, timing);
    const Outcome compressed = simulate(config, engine::SimPasses::kCompressed, seed, timing);

    ASSERT_EQ(first_difference(naive.requests, compressed.requests), "") << "seed " << seed;
    ASSERT_EQ(first_difference(naive.report, compressed.report), "") << "seed " << seed;
    with_preemptions += naive.preemptions > 0 ? 1 : 0;
    with_rejections += naive.rejected > 0 ? 1 : 0;
    with_migrations += naive.migrated > 0 ? 1 : 0;
    with_shedding += naive.shed > 0 ? 1 : 0;
    with_idle_ranks += naive.dummy_passes > 0 ? 1 : 0;
  }
  // The workloads reach what is hard.
  EXPECT_GT(with_preemptions, 100);
  EXPECT_GT(with_rejections, 50);
  EXPECT_GT(with_migrations, 100);
  EXPECT_GT(with_shedding, 30);
  EXPECT_GT(with_idle_ranks, 200);
}

}  // namespace
}  // namespace stator::simulator
