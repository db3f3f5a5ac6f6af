// SPDX-License-Identifier: Apache-2.0
// What routing policies are worth on 8 simulated workers, on traces that were recorded and on one
// that is made up here. Everything is deterministic, so a bound stands close to what is reached.
// docs/benchmarks/simulation.md has the figures of every policy and load.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "stator/core/random.h"
#include "stator/lab/simulator/cluster.h"
#include "stator/lab/simulator/mooncake_trace.h"
#include "stator/lab/simulator/workload_generator.h"
#include "stator/perf/polynomial_timing.h"

namespace stator::simulator {
namespace {

constexpr uint32_t kWorkers = 8;
constexpr uint32_t kHashTokens = 512;

/// A trace of agents over 1,000 seconds: a few long system prompts, sessions whose prompts grow
/// turn by turn.
std::string make_agent_trace() {
  Random random(5);
  constexpr uint64_t kAgents = 12;
  constexpr uint64_t kSessions = 350;
  std::multimap<uint64_t, std::string> lines;  // by time
  uint64_t fresh = 1'000'000;                  // ids of blocks that nobody has had
  for (uint64_t session = 0; session < kSessions; ++session) {
    const uint64_t agent = random.below(kAgents);
    std::vector<uint64_t> ids;
    for (uint64_t block = 0; block < 6 + agent; ++block) {
      ids.push_back(agent * 100 + block);
    }
    uint64_t time = random.below(1'000'000);
    for (uint64_t turn = 0, turns = 1 + random.below(7); turn < turns; ++turn) {
      for (uint64_t block = 0, more = 1 + random.below(6); block < more; ++block) {
        ids.push_back(fresh++);
      }
      lines.emplace(
          time,
          fmt::format(R"({{"timestamp":{},"input_length":{},"output_length":{},"hash_ids":[{}]}})"
                      "\n",
                      time, ids.size() * kHashTokens, 40 + random.below(200), fmt::join(ids, ",")));
      time += 15'000 + random.below(30'000);
    }
  }
  std::string text;
  for (const auto& [time, line] : lines) {
    text += line;
  }
  return text;
}

std::string read_recorded(const std::string& name) {
  std::ifstream file(std::filesystem::path(STATOR_SHARED_DIR) / "data/traces" / name);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Workload {
  const char* name;
  std::string (*text)();
  double times_round_robin;  ///< how much sooner the default policy is at 0.9, at least
};

const Workload kWorkloads[] = {
    {"agents", make_agent_trace, 2},
    {"synthetic", [] { return read_recorded("synthetic_trace.jsonl"); }, 6},
    {"conversation", [] { return read_recorded("conversation_trace.jsonl"); }, 2},
};

class PolicyQuality : public testing::TestWithParam<Workload> {
 protected:
  Report simulate(ClusterConfig config) const {
    const perf::PolynomialTiming timing;
    std::istringstream input(text_);
    const auto trace = make_mooncake_trace(LineReader(input, GetParam().name), {});
    auto cluster = Cluster::create(config, timing);
    EXPECT_TRUE(cluster.has_value());
    Recorder recorder((*cluster)->worker_count(), {});
    EXPECT_TRUE((*cluster)->run(*trace, recorder).has_value());
    return recorder.make_report();
  }

  static ClusterConfig fleet(const std::string& mode) {
    ClusterConfig config{.workers = kWorkers};
    config.router.mode = mode;
    return config;
  }

  /// Mean milliseconds to the first token at a part of the rate that round robin can serve.
  double ttft(const std::string& mode, double load) const {
    ClusterConfig config = fleet(mode);
    config.arrival_speedup = load * speedup_;
    return simulate(config).ttft_ms.mean;
  }

  void SetUp() override {
    text_ = GetParam().text();
    if (text_.empty()) {
      GTEST_SKIP() << "recorded traces are others' work, and not here; made-up ones are tested";
    }
    ClusterConfig own_pace = fleet("round_robin");
    const double own = simulate(own_pace).requests_per_s();
    own_pace.concurrency = 64 * kWorkers;
    speedup_ = simulate(own_pace).requests_per_s() / own;
  }

  const std::string default_mode_ = router::RouterConfig().mode;
  std::string text_;
  double speedup_ = 1;
};

TEST_P(PolicyQuality, TheDefaultIsNeverWorseThanTheReferenceCost) {
  for (const double load : {0.3, 0.6, 0.9, 1.1}) {
    const double reference = ttft("kv", load);
    const double ours = ttft(default_mode_, load);
    EXPECT_LE(ours, reference * (load >= 0.8 ? 0.95 : 1.0)) << "at load " << load;
  }
}

TEST_P(PolicyQuality, TheDefaultIsSoonerThanRoundRobinUnderLoad) {
  EXPECT_LE(ttft(default_mode_, 0.9) * GetParam().times_round_robin, ttft("round_robin", 0.9));
}

INSTANTIATE_TEST_SUITE_P(Traces, PolicyQuality, testing::ValuesIn(kWorkloads),
                         [](const auto& workload) { return workload.param.name; });

/// Part of all prompt tokens that were found in caches, with so many routers.
double find_hit_rate(uint32_t routers) {
  const perf::PolynomialTiming timing;
  const auto trace = make_workload({.requests = 8000,
                                    .rate = 80,
                                    .input{.distribution = "lognormal", .mean = 2000, .std = 2000},
                                    .output{.distribution = "lognormal", .mean = 150, .std = 100},
                                    .prefix_tokens = 4096,
                                    .prefix_groups = 200,
                                    .prefix_skew = 1,
                                    .turns = 5,
                                    .pause{.distribution = "exponential", .mean = 10'000}});
  EXPECT_TRUE(trace.has_value());
  ClusterConfig config{.workers = 240, .router_replicas = routers};
  auto cluster = Cluster::create(config, timing);
  EXPECT_TRUE(cluster.has_value());
  Recorder recorder((*cluster)->worker_count(), {});
  EXPECT_TRUE((*cluster)->run(**trace, recorder).has_value());
  EXPECT_EQ((*cluster)->booked(), 0);
  return recorder.make_report().first_cached_ratio;
}

TEST(RouterReplicas, EightFindInTheCachesOf240WorkersWhatOneFinds) {
  const double one = find_hit_rate(1);
  EXPECT_GT(one, 0.5);
  EXPECT_GE(find_hit_rate(8), one * 0.98);
}

}  // namespace
}  // namespace stator::simulator
