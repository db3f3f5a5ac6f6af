// SPDX-License-Identifier: Apache-2.0
// The scheduler of live engines on virtual time, against the fast one of simulations.
#include "stator/engine/sim/token_sim_core.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "stator/perf/linear_timing.h"
#include "stator/perf/polynomial_timing.h"

namespace stator::engine {
namespace {

struct Arrival {
  TimePoint at{};
  SimRequest request;
};

struct Times {
  TimePoint first{};
  TimePoint last{};
  uint32_t cached = 0;
  friend bool operator==(const Times&, const Times&) = default;
};

struct Outcome {
  std::map<uint32_t, Times> requests;
  uint64_t gaps = 0;
  Duration gap_total{};
  uint32_t preemptions = 0;
};

/// Requests of `groups` shared prefixes, some ms apart.
std::vector<Arrival> workload(const SimEngineConfig& config, uint64_t seed, uint32_t groups) {
  Random random(seed);
  std::vector<Arrival> out;
  TimePoint now{};
  for (uint32_t id = 0; id < 200; ++id) {
    now += std::chrono::microseconds(random.below(150'000));
    SimRequest request{.id = id,
                       .prompt_tokens = 100 + static_cast<uint32_t>(random.below(6'000)),
                       .output_tokens = 1 + static_cast<uint32_t>(random.below(300)),
                       .answer_seed = mix64(id)};
    const uint64_t group = random.below(groups);
    for (uint32_t i = 0; i < request.prompt_tokens / config.block_size; ++i) {
      const uint64_t owner = i < 30 ? group : groups + id;
      request.locals.emplace_back(mix64(owner * 1'000'003 + i));
      request.sequences.push_back(i == 0
                                      ? blocks::chain(request.locals[0])
                                      : blocks::chain(request.sequences[i - 1], request.locals[i]));
    }
    out.push_back({now, std::move(request)});
  }
  return out;
}

Outcome run(SimCore& core, const std::vector<Arrival>& arrivals) {
  Outcome out;
  SimOutcome outcome;
  size_t next = 0;
  TimePoint now{};
  TimePoint end{};
  while (next < arrivals.size() || core.busy() || core.has_work()) {
    if (core.busy() && (next == arrivals.size() || end <= arrivals[next].at)) {
      now = end;
      core.finish(outcome);
      for (const SimOutcome::Admission& admission : outcome.admitted) {
        out.requests.try_emplace(admission.id).first->second.cached = admission.cached_tokens;
      }
      for (const uint32_t id : outcome.first) {
        out.requests[id].first = outcome.end;
      }
      for (const uint32_t id : outcome.finished) {
        out.requests[id].last = outcome.end;
      }
      for (const auto& [duration, times] : outcome.gaps) {
        out.gaps += times;
        out.gap_total += duration * static_cast<int64_t>(times);
      }
      out.preemptions += outcome.preemptions;
    } else {
      now = arrivals[next].at;
      core.submit(arrivals[next++].request);
    }
    while (next < arrivals.size() && arrivals[next].at == now) {
      core.submit(arrivals[next++].request);
    }
    if (core.busy()) {
      end = core.interrupt(now);
    } else if (core.has_work()) {
      end = core.start(now);
    }
  }
  return out;
}

Outcome run(SimPasses passes, const SimEngineConfig& config, const perf::TimingModel& timing,
            const std::vector<Arrival>& arrivals) {
  return run(*make_sim_core(config, timing, passes), arrivals);
}

TEST(TokenSimCore, ALiveEngineKeepsTheTimesOfTheFastSimulation) {
  const SimEngineConfig config{.block_size = 16, .blocks = 100'000};
  const perf::LinearTiming timing;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto arrivals = workload(config, seed, 1'000'000);  // nobody shares a prefix
    const Outcome live = run(SimPasses::kProduction, config, timing, arrivals);
    const Outcome fast = run(SimPasses::kCompressed, config, timing, arrivals);
    EXPECT_EQ(live.requests, fast.requests) << "seed " << seed;
    EXPECT_EQ(live.gaps, fast.gaps);
    EXPECT_EQ(live.gap_total, fast.gap_total);
  }
}

/// Live engines share a block when the pass that computed it has ended, simulated ones at once, and
/// live ones take all blocks of a prompt at its admission. Neither may matter much.
TEST(TokenSimCore, SharedPrefixesAndScarceBlocksMakeLittleDifference) {
  const SimEngineConfig config{.block_size = 16, .blocks = 4'000};
  const perf::PolynomialTiming timing;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const auto arrivals = workload(config, seed, 8);
    const Outcome live = run(SimPasses::kProduction, config, timing, arrivals);
    const Outcome fast = run(SimPasses::kCompressed, config, timing, arrivals);
    const auto mean_ttft = [&](const Outcome& one) {
      Duration sum{};
      for (const Arrival& arrival : arrivals) {
        sum += one.requests.at(arrival.request.id).first - arrival.at;
      }
      return std::chrono::duration<double, std::milli>(sum).count() /
             static_cast<double>(arrivals.size());
    };
    EXPECT_EQ(live.gaps, fast.gaps);
    EXPECT_NEAR(mean_ttft(live) / mean_ttft(fast), 1, 0.05) << "seed " << seed;
    EXPECT_NEAR(
        static_cast<double>(live.gap_total.count()) / static_cast<double>(fast.gap_total.count()),
        1, 0.05);
  }
}

TEST(TokenSimCore, SglangHoldsDecodesBackForPrompts) {
  SimEngineConfig config{.block_size = 16, .blocks = 100'000};
  const perf::LinearTiming timing;
  const auto arrivals = workload(config, 3, 50);
  const Outcome vllm = run(SimPasses::kProduction, config, timing, arrivals);
  config.rules = SchedulingRules::kSglang;
  const Outcome sglang = run(SimPasses::kCompressed, config, timing, arrivals);
  EXPECT_EQ(sglang.gaps, vllm.gaps);
  EXPECT_EQ(sglang.requests.size(), arrivals.size());
  EXPECT_NE(sglang.gap_total, vllm.gap_total);
}

TEST(TokenSimCore, AcceptedDraftsSavePasses) {
  SimEngineConfig config{.block_size = 16, .blocks = 100'000};
  const perf::PolynomialTiming timing = *perf::PolynomialTiming::create(
      {.prefill_ms = {0, 0, 0}, .decode_ms = {10, 0, 0}, .decode_min_ms = 0});
  const auto arrivals = workload(config, 4, 50);
  const Outcome plain = run(SimPasses::kProduction, config, timing, arrivals);
  config.draft_acceptance = {0.8, 0.5};
  const Outcome drafting = run(SimPasses::kCompressed, config, timing, arrivals);
  EXPECT_EQ(drafting.gaps, plain.gaps);
  // 1 + 0.8 + 0.8 · 0.5 tokens per pass.
  EXPECT_NEAR(static_cast<double>(plain.gap_total.count()) /
                  static_cast<double>(drafting.gap_total.count()),
              2.2, 0.25);
}

TEST(TokenSimCore, HostMemoryGivesEvictedPrefixesBack) {
  SimEngineConfig config{.block_size = 16, .blocks = 1'000};
  const perf::PolynomialTiming timing;
  const auto arrivals = workload(config, 5, 8);
  const auto cached = [&](const Outcome& one) {
    uint64_t tokens = 0;
    for (const auto& [id, times] : one.requests) {
      tokens += times.cached;
    }
    return tokens;
  };
  const uint64_t without = cached(run(SimPasses::kProduction, config, timing, arrivals));
  config.host_blocks = 10'000;
  const uint64_t with = cached(run(SimPasses::kCompressed, config, timing, arrivals));
  config.blocks = 100'000;
  config.host_blocks = 0;
  const uint64_t everything = cached(run(SimPasses::kProduction, config, timing, arrivals));

  EXPECT_GT(with, without + (everything - without) / 2);
  // Who comes while the first of its group is computed depends on the times.
  EXPECT_NEAR(static_cast<double>(with) / static_cast<double>(everything), 1, 0.02);
}

TEST(TokenSimCore, APassLastsAsLongAsItsLoadFromHostMemory) {
  SimEngineConfig config{.block_size = 16, .blocks = 8, .host_blocks = 8};
  config.host_link = {.bytes_per_token = 1e6, .bytes_per_second = 1e9};  // 1 ms per token
  const perf::PolynomialTiming timing = *perf::PolynomialTiming::create(
      {.prefill_ms = {10, 0, 0}, .decode_ms = {0, 0, 0}, .decode_min_ms = 0});
  TokenSimCore core(config, timing);
  SimOutcome outcome;
  TimePoint now{};
  const auto run_one = [&](uint32_t id, uint64_t content) {
    SimRequest request{.id = id, .prompt_tokens = 100, .output_tokens = 1};
    for (uint64_t i = 0; i < 6; ++i) {
      request.locals.emplace_back(content + i);
      request.sequences.push_back(i == 0
                                      ? blocks::chain(request.locals[0])
                                      : blocks::chain(request.sequences[i - 1], request.locals[i]));
    }
    core.submit(std::move(request));
    const TimePoint begin = now;
    now = core.start(now);
    core.finish(outcome);
    return now - begin;
  };

  EXPECT_EQ(run_one(1, 100), std::chrono::milliseconds(10));
  EXPECT_EQ(run_one(2, 200), std::chrono::milliseconds(10));
  EXPECT_EQ(outcome.offloaded_blocks, 5U);  // one was free
  EXPECT_EQ(run_one(3, 100), std::chrono::milliseconds(80));
  EXPECT_EQ(outcome.admitted[0].cached_tokens, 96U);
  EXPECT_EQ(outcome.admitted[0].host_tokens, 80U);
}

TEST(TokenSimCore, WhatNeverFitsIsRejected) {
  const SimEngineConfig config{.block_size = 16, .blocks = 10, .max_num_batched_tokens = 512};
  const perf::LinearTiming timing;
  TokenSimCore core(config, timing);
  core.submit({.id = 7, .prompt_tokens = 150, .output_tokens = 11});
  EXPECT_EQ(core.start(TimePoint{}), TimePoint{});
  SimOutcome outcome;
  core.finish(outcome);
  EXPECT_EQ(outcome.rejected, std::vector<uint32_t>{7});
  EXPECT_FALSE(core.has_work());
}

TEST(TokenSimCore, APromptComputedElsewhereNeedsNoPrefill) {
  SimEngineConfig config{.block_size = 16, .blocks = 100};
  config.role = SimRole::kDecode;
  const perf::PolynomialTiming timing = *perf::PolynomialTiming::create(
      {.prefill_ms = {10, 0, 0}, .decode_ms = {1, 0, 0}, .decode_min_ms = 0});
  TokenSimCore core(config, timing);
  core.submit({.id = 1,
               .prompt_tokens = 100,
               .output_tokens = 2,
               .prefilled = true,
               .first_token = TimePoint{}});
  EXPECT_EQ(core.start(TimePoint{}), TimePoint(std::chrono::milliseconds(1)));
  SimOutcome outcome;
  core.finish(outcome);
  EXPECT_EQ(outcome.finished, std::vector<uint32_t>{1});
}

}  // namespace
}  // namespace stator::engine
