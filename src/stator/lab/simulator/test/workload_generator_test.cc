// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/workload_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "stator/lab/simulator/mooncake_trace.h"

namespace stator::simulator {
namespace {

using testing::HasSubstr;

std::vector<TraceRequest> make(const WorkloadConfig& config) {
  const auto workload = make_workload(config);
  EXPECT_TRUE(workload.has_value());
  std::vector<TraceRequest> requests;
  TraceRequest request;
  while (*(*workload)->next(request)) {
    requests.push_back(request);
  }
  return requests;
}

std::string render(const std::vector<TraceRequest>& requests) {
  std::string out;
  for (const TraceRequest& request : requests) {
    out += render_mooncake(request);
  }
  return out;
}

double seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

TEST(Workload, IsTheSameForTheSameSeed) {
  WorkloadConfig config{.requests = 500, .turns = 3, .seed = 5};
  config.input = {"lognormal", 300, 200};

  EXPECT_EQ(render(make(config)), render(make(config)));
  WorkloadConfig other = config;
  other.seed = 6;
  EXPECT_NE(render(make(config)), render(make(other)));
}

TEST(Workload, EveryArrivalPatternKeepsItsRateAndItsOrder) {
  for (const std::string& arrivals : arrival_names()) {
    const std::vector<TraceRequest> requests = make({.requests = 20'000,
                                                     .arrivals = arrivals,
                                                     .rate = 8,
                                                     .burstiness = 0.3,
                                                     .period = std::chrono::seconds(500),
                                                     .swing = 1});

    EXPECT_TRUE(std::ranges::is_sorted(requests, {}, &TraceRequest::arrival)) << arrivals;
    EXPECT_NEAR(seconds(requests.back().arrival), 20'000 / 8.0, 120) << arrivals;
  }
}

TEST(Workload, ArrivalsDifferInHowTheyBunch) {
  const auto variation = [](const std::string& arrivals, double shape) {
    const auto requests =
        make({.requests = 20'000, .arrivals = arrivals, .rate = 1, .burstiness = shape});
    double mean = 0;
    double square = 0;
    for (size_t i = 1; i < requests.size(); ++i) {
      const double gap = seconds(requests[i].arrival - requests[i - 1].arrival);
      mean += gap / static_cast<double>(requests.size());
      square += gap * gap / static_cast<double>(requests.size());
    }
    return std::sqrt(square - mean * mean) / mean;
  };

  EXPECT_NEAR(variation("constant", 1), 0, 0.01);
  EXPECT_NEAR(variation("poisson", 1), 1, 0.05);
  EXPECT_NEAR(variation("gamma", 0.25), 2, 0.15);
  EXPECT_GT(variation("bursts", 1), 2);
}

TEST(Workload, DiurnalArrivalsAreFewestAtTheBeginningOfAPeriod) {
  const auto requests = make({.requests = 10'000,
                              .arrivals = "diurnal",
                              .rate = 10,
                              .period = std::chrono::seconds(1000),
                              .swing = 0.9});
  size_t low = 0;
  size_t high = 0;
  for (const TraceRequest& request : requests) {
    const double phase = std::fmod(seconds(request.arrival), 1000);
    low += phase < 100 || phase > 900 ? 1 : 0;
    high += phase > 400 && phase < 600 ? 1 : 0;
  }

  EXPECT_GT(high, 5 * low);
}

TEST(Workload, LengthsFollowTheirDistribution) {
  WorkloadConfig config{.requests = 20'000};
  config.input = {"lognormal", 500, 250};
  config.output = {"normal", 100, 10};
  double input = 0;
  double output = 0;
  for (const TraceRequest& request : make(config)) {
    input += request.input_tokens / 20'000.0;
    output += request.output_tokens / 20'000.0;
  }

  EXPECT_NEAR(input, 500, 10);
  EXPECT_NEAR(output, 100, 1);
}

TEST(Workload, DrawsFromMeasuredLengths) {
  WorkloadConfig config{.requests = 1000};
  config.lengths = {{10, 1}, {2000, 7}};
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const TraceRequest& request : make(config)) {
    seen.insert({request.input_tokens, request.output_tokens});
  }

  EXPECT_EQ(seen, (std::set<std::pair<uint32_t, uint32_t>>{{10, 1}, {2000, 7}}));
}

TEST(Workload, SessionsOfAGroupShareItsPrefixAndNoMore) {
  WorkloadConfig config{.requests = 400,
                        .prefix_tokens = 128,
                        .prefix_groups = 3,
                        .prefix_skew = 1,
                        .block_tokens = 64};
  config.input.mean = 100;
  std::map<uint64_t, int> groups;
  std::set<uint64_t> own;
  for (const TraceRequest& request : make(config)) {
    ASSERT_EQ(request.hash_ids.size(), 4);  // 228 tokens
    EXPECT_EQ(request.hash_ids[1], request.hash_ids[0] + 1);
    ++groups[request.hash_ids[0]];
    EXPECT_TRUE(own.insert(request.hash_ids[2]).second);
    EXPECT_TRUE(own.insert(request.hash_ids[3]).second);
  }

  EXPECT_EQ(groups.size(), 3);
  EXPECT_GT(groups[0], groups[4]) << "the first group is the most popular";
}

TEST(Workload, TurnsRepeatAllThatWasSaid) {
  WorkloadConfig config{.requests = 3, .turns = 3, .block_tokens = 10};
  config.input.mean = 25;
  config.output.mean = 12;
  config.pause.mean = 40;
  const auto requests = make(config);

  EXPECT_EQ(requests[0].input_tokens, 25);
  EXPECT_EQ(requests[1].input_tokens, 25 + 12 + 25);
  EXPECT_EQ(requests[2].input_tokens, 25 + 12 + 25 + 12 + 25);
  EXPECT_EQ(requests[1].session, requests[0].session);
  EXPECT_FALSE(requests[0].delay.has_value());
  EXPECT_EQ(requests[1].delay, std::chrono::milliseconds(40));
  for (size_t turn = 1; turn < 3; ++turn) {
    const auto& before = requests[turn - 1].hash_ids;
    const auto& after = requests[turn].hash_ids;
    EXPECT_TRUE(std::equal(before.begin(), before.end() - 1, after.begin()))
        << "all but the partial last block";
    EXPECT_NE(before.back(), after[before.size() - 1]);
  }
}

TEST(Workload, AnAgentWaitsForItsSubAgents) {
  WorkloadConfig config{.requests = 6, .turns = 2, .fan_out = 2};
  const auto requests = make(config);

  ASSERT_EQ(requests.size(), 6);
  EXPECT_TRUE(requests[0].wait_for->empty());
  EXPECT_EQ(requests[1].wait_for->front(), requests[0].request_id);
  EXPECT_EQ(requests[2].wait_for->front(), requests[1].request_id);
  EXPECT_EQ(requests[3].wait_for->front(), requests[0].request_id);
  EXPECT_EQ(*requests[5].wait_for,
            (std::vector<std::string>{requests[2].request_id, requests[4].request_id}));
}

TEST(Workload, RefusesWhatCannotBeMade) {
  const auto error = [](const WorkloadConfig& config) {
    const auto made = make_workload(config);
    return made ? std::string() : std::string(made.error().message());
  };
  EXPECT_THAT(error({.arrivals = "never"}), HasSubstr("arrivals 'never'"));
  EXPECT_THAT(error({.rate = 0}), HasSubstr("at 0 per second"));
  EXPECT_THAT(error({.swing = 2}), HasSubstr("swing from 0 to 1"));
  EXPECT_THAT(error({.input = {"fixed", NAN}}), HasSubstr("lengths 'fixed' with mean nan"));
  EXPECT_THAT(error({.turns = 0}), HasSubstr("at least one turn"));
  EXPECT_THAT(error({.turns = 60'000, .fan_out = 1000}), HasSubstr("a session has at most"));
}

}  // namespace
}  // namespace stator::simulator
