// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/perf/linear_timing.h"
#include "stator/planner/planner_core.h"

namespace stator::planner {
namespace {

constexpr double kStartUp_s = 30;

/// Rates that stay for some minutes each; the last stretch is silence.
struct Workload {
  std::vector<std::pair<double, double>> stretches;  // until when, requests per second
  double rate_at(double now_s) const {
    for (const auto& [end, rate] : stretches) {
      if (now_s < end) {
        return rate;
      }
    }
    return 0;
  }
  bool changes_between(double from_s, double to_s) const {
    for (const auto& [end, rate] : stretches) {
      if (end > from_s && end <= to_s) {
        return true;
      }
    }
    return false;
  }
};

Workload draw(Random& random) {
  Workload out;
  double end = 0;
  for (int i = 0; i < 3; ++i) {
    end += 240 + static_cast<double>(random.below(360));
    out.stretches.emplace_back(end, 0.5 + random.uniform() * 8);
  }
  return out;
}

/// A fleet of engines that share the load evenly and do as they are told, after a start-up time.
class Fleet {
 public:
  explicit Fleet(uint64_t seed) : random_(seed) {
    const auto timing = perf::LinearTiming::create({.step_us = 8000, .prefill_token_us = 60});
    timing_ = *timing;
    core_ = std::move(*PlannerCore::create({.policy = PolicyKind::kMpc,
                                            .ttft_ms = 800,
                                            .itl_ms = 40,
                                            .start_up_s = kStartUp_s,
                                            .max_workers = 12,
                                            .mpc_paths = 2,
                                            .seed = seed},
                                           timing_));
  }

  /// Requests come at random; returns the size that is wanted afterwards.
  uint32_t tick(double rate, bool lost) {
    now_s_ += core_->interval_s();
    while (!starting_.empty() && starting_.front() <= now_s_) {
      starting_.erase(starting_.begin());
      ++ready_;
    }
    Inputs inputs{.now_s = now_s_};
    inputs.decode = {.ready = ready_, .expected = ready_ + static_cast<uint32_t>(starting_.size())};
    if (lost) {
      inputs.broken = "metrics are lost";
    } else {
      const double mean = rate * core_->interval_s();
      double count = 0;
      for (double sum = -std::log(1 - random_.uniform()); sum < mean;
           sum += -std::log(1 - random_.uniform())) {
        ++count;
      }
      inputs.traffic = Traffic{.duration_s = core_->interval_s(),
                               .requests = count,
                               .input_tokens = 1500,
                               .output_tokens = 150,
                               .ended = count};
    }
    for (uint32_t i = 0; i < ready_; ++i) {
      const double running = rate / std::max(1U, ready_) * 1.5;
      inputs.decode.engines.push_back(
          {.id = i, .running = running, .decode_kv_tokens = running * 1600});
    }
    const uint32_t wanted = core_->tick(inputs).workers.value_or(inputs.decode.expected);
    for (uint32_t i = inputs.decode.expected; i < wanted; ++i) {
      starting_.push_back(now_s_ + kStartUp_s);
    }
    while (ready_ + starting_.size() > wanted) {
      starting_.empty() ? static_cast<void>(--ready_) : starting_.pop_back();
    }
    return wanted;
  }
  double now_s() const { return now_s_; }

 private:
  Random random_;
  perf::LinearTiming timing_;
  std::unique_ptr<PlannerCore> core_;
  uint32_t ready_ = 2;
  std::vector<double> starting_;
  double now_s_ = 0;
};

/// STATOR_STABILITY_ROUNDS=1000 is what docs/benchmarks/planning.md tells of.
int rounds() {
  const char* text = std::getenv("STATOR_STABILITY_ROUNDS");
  return text == nullptr ? 5 : std::atoi(text);
}

TEST(PlannerStability, SizesFollowTheLoadAndNothingElse) {
  for (int round = 0; round < rounds(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(round));
    Random random(static_cast<uint64_t>(round) + 1);
    const Workload load = draw(random);
    Fleet fleet(static_cast<uint64_t>(round) + 1);
    uint32_t size = 2;
    double up_s = -1e9, down_s = -1e9;
    const double end = load.stretches.back().first + 900;
    while (fleet.now_s() < end) {
      const uint32_t wanted = fleet.tick(load.rate_at(fleet.now_s()), false);
      ASSERT_GE(wanted, 1U);
      ASSERT_LE(wanted, 12U);
      if (wanted > size) {
        const bool swung = down_s > up_s && fleet.now_s() - up_s < 2 * kStartUp_s &&
                           !load.changes_between(up_s - 2 * kStartUp_s, fleet.now_s());
        ASSERT_FALSE(swung) << "up at " << up_s << ", down at " << down_s << ", up at "
                            << fleet.now_s();
        up_s = fleet.now_s();
      } else if (wanted < size) {
        down_s = fleet.now_s();
      }
      size = wanted;
    }
    EXPECT_EQ(size, 1U) << "nothing comes any more";
  }
}

TEST(PlannerStability, LostMetricsNeverShrinkAFleet) {
  for (int round = 0; round < rounds(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(round));
    Fleet fleet(static_cast<uint64_t>(round) + 1);
    uint32_t size = 2;
    while (fleet.now_s() < 400) {
      size = fleet.tick(4, false);
    }
    const double lost_until = fleet.now_s() + 600;
    while (fleet.now_s() < lost_until) {
      ASSERT_EQ(fleet.tick(4, true), size);
    }
  }
}

}  // namespace
}  // namespace stator::planner
