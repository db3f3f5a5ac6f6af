// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/workload_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>

#include "stator/core/random.h"
#include "stator/lab/loadgen/arrivals.h"
#include "stator/lab/simulator/capped_time.h"

namespace stator::simulator {
namespace {

constexpr double kTurnsAndBranchesMax = 1e6;

double seconds_of(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// When sessions come. Poisson and its like are drawn for a rate of one per second; time is then
/// stretched so that the rate is what it should be.
class SessionTimes {
 public:
  explicit SessionTimes(const WorkloadConfig& config)
      : config_(config), schedule_(options(config)) {}

  Duration next() {
    if (config_.arrivals == "bursts") {
      if (in_burst_++ % config_.burst == 0) {
        time_ = seconds_of(schedule_.next()) * config_.burst / config_.rate;
      }
    } else {
      const double expected = seconds_of(schedule_.next()) / config_.rate;
      time_ = config_.arrivals == "diurnal" ? invert(expected) : expected;
    }
    return capped_time(time_ * 1e9);
  }

 private:
  static loadgen::ArrivalOptions options(const WorkloadConfig& config) {
    using Pattern = loadgen::ArrivalPattern;
    return {.pattern = config.arrivals == "constant" ? Pattern::kConstant
                       : config.arrivals == "gamma"  ? Pattern::kGamma
                                                     : Pattern::kPoisson,
            .burstiness = config.burstiness,
            .seed = config.seed};
  }

  /// The time by which a rate of 1 − swing · cos(2π · t / period) has brought `expected` arrivals.
  double invert(double expected) const {
    const double turn = 2 * std::numbers::pi / seconds_of(config_.period);
    double low = std::max(0.0, expected - config_.swing / turn);
    double high = expected + config_.swing / turn;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (middle - config_.swing / turn * std::sin(turn * middle) < expected ? low : high) = middle;
    }
    return high;
  }

  const WorkloadConfig& config_;
  loadgen::ArrivalSchedule schedule_;
  uint64_t in_burst_ = 0;
  double time_ = 0;
};

class Workload final : public TraceSource {
 public:
  explicit Workload(const WorkloadConfig& config)
      : config_(config),
        times_(config_),
        random_(mix64(config.seed)),
        prefix_blocks_(config.prefix_tokens / config.block_tokens),
        next_id_(uint64_t{prefix_blocks_} * config.prefix_groups) {
    double sum = 0;
    for (uint32_t group = 0; group < config.prefix_groups; ++group) {
      sum += std::pow(group + 1.0, -config.prefix_skew);
      popularity_.push_back(sum);
    }
  }

  Result<bool> next(TraceRequest& request) override {
    if (made_ == config_.requests) {
      return false;
    }
    if (pending_.empty()) {
      make_session();
    }
    request = std::move(pending_.front());
    pending_.pop_front();
    request.line = ++made_;
    return true;
  }

  uint32_t block_tokens() const override { return config_.block_tokens; }

 private:
  /// What a session has said so far.
  struct Context {
    uint32_t tokens = 0;
    std::vector<uint64_t> full;  // ids of full blocks
  };

  void make_session() {
    Context context;
    const uint64_t group = draw_group();
    for (uint64_t i = 0; i < prefix_blocks_; ++i) {
      context.full.push_back(group * prefix_blocks_ + i);
    }
    context.tokens = config_.prefix_tokens;
    session_ = fmt::format("s{}", ++sessions_);
    const Duration arrival = times_.next();
    if (config_.fan_out > 0) {
      make_agent(context, arrival);
      return;
    }
    for (uint32_t turn = 0; turn < config_.turns; ++turn) {
      TraceRequest request = ask(context);
      request.arrival = turn == 0 ? arrival : Duration();
      if (config_.turns > 1) {
        request.session = session_;
      }
      if (turn > 0) {
        request.delay = draw_pause();
      }
      pending_.push_back(std::move(request));
    }
  }

  void make_agent(Context& context, Duration arrival) {
    const auto add = [&](TraceRequest request, std::string id, std::vector<std::string> wait_for) {
      request.arrival = wait_for.empty() ? arrival : Duration();
      request.delay = wait_for.empty() ? std::nullopt : std::optional(draw_pause());
      request.session = session_;
      request.request_id = std::move(id);
      request.wait_for = std::move(wait_for);
      pending_.push_back(std::move(request));
    };
    add(ask(context), session_ + ".begin", {});
    std::vector<std::string> last;
    for (uint32_t branch = 0; branch < config_.fan_out; ++branch) {
      Context own = context;
      std::string before = session_ + ".begin";
      for (uint32_t turn = 0; turn < config_.turns; ++turn) {
        std::string id = fmt::format("{}.{}.{}", session_, branch, turn);
        add(ask(own), id, {before});
        before = std::move(id);
      }
      last.push_back(before);
    }
    add(ask(context), session_ + ".end", last);
  }

  /// A turn whose prompt is the context and new text; its answer joins the context.
  TraceRequest ask(Context& context) {
    auto [input, output] = draw_lengths();
    // What does not fit in a trace begins anew.
    if (uint64_t{context.tokens} + input + output > kTraceTokensMax) {
      context = {};
    }
    context.tokens += input;
    const uint32_t full = context.tokens / config_.block_tokens;
    while (context.full.size() < full) {
      context.full.push_back(next_id_++);
    }
    TraceRequest request{.input_tokens = context.tokens, .output_tokens = output};
    request.hash_ids = context.full;
    if (context.tokens % config_.block_tokens != 0) {
      request.hash_ids.push_back(next_id_++);
    }
    context.tokens += output;
    return request;
  }

  uint64_t draw_group() {
    const double at = random_.uniform() * popularity_.back();
    const auto group = std::ranges::upper_bound(popularity_, at) - popularity_.begin();
    return std::min<uint64_t>(static_cast<uint64_t>(group), config_.prefix_groups - 1);
  }

  std::pair<uint32_t, uint32_t> draw_lengths() {
    if (!config_.lengths.empty()) {
      return config_.lengths[random_.below(config_.lengths.size())];
    }
    const auto tokens = [&](const LengthConfig& length) {
      return static_cast<uint32_t>(
          std::clamp(std::round(draw(length)), 1.0, kTraceTokensMax / 4.0));
    };
    const uint32_t input = tokens(config_.input);
    return {input, tokens(config_.output)};
  }

  Duration draw_pause() {
    return Duration(std::llround(std::clamp(draw(config_.pause), 0.0, 1e12) * 1e6));
  }

  double draw(const LengthConfig& length) {
    if (length.distribution == "normal") {
      return length.mean + length.std * draw_normal();
    }
    if (length.distribution == "lognormal" && length.mean > 0) {
      const double variance = std::log1p(length.std * length.std / (length.mean * length.mean));
      return std::exp(std::log(length.mean) - variance / 2 + std::sqrt(variance) * draw_normal());
    }
    if (length.distribution == "exponential") {
      return -length.mean * std::log1p(-random_.uniform());
    }
    return length.mean;
  }

  double draw_normal() {  // Box and Muller, 1958
    const double radius = std::sqrt(-2 * std::log1p(-random_.uniform()));
    return radius * std::cos(2 * std::numbers::pi * random_.uniform());
  }

  const WorkloadConfig config_;
  SessionTimes times_;
  Random random_;
  const uint32_t prefix_blocks_;
  uint64_t next_id_;
  std::vector<double> popularity_;  // sums up to each group
  std::deque<TraceRequest> pending_;
  std::string session_;
  uint64_t sessions_ = 0;
  uint64_t made_ = 0;
};

Status validate(const WorkloadConfig& config) {
  const auto refuse = [](std::string message) {
    return Error(Code::kInvalidArgument, std::move(message));
  };
  const auto known = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  if (!known(arrival_names(), config.arrivals) || !(config.rate > 0) || !(config.burstiness > 0) ||
      config.burst == 0) {
    return refuse(
        fmt::format("arrivals '{}' at {} per second (shape {}, bursts of {}) cannot be made",
                    config.arrivals, config.rate, config.burstiness, config.burst));
  }
  if (!(config.swing >= 0 && config.swing <= 1) || config.period <= Duration::zero()) {
    return refuse("a diurnal rate needs a swing from 0 to 1 and a period above 0");
  }
  for (const LengthConfig* length : {&config.input, &config.output, &config.pause}) {
    if (!known(length_names(), length->distribution) || !(length->mean >= 0) ||
        !(length->std >= 0)) {
      return refuse(fmt::format("lengths '{}' with mean {} and deviation {} cannot be drawn",
                                length->distribution, length->mean, length->std));
    }
  }
  if (config.prefix_groups == 0 || config.turns == 0 || config.block_tokens == 0 ||
      config.prefix_tokens > kTraceTokensMax / 4) {
    return refuse("sessions need at least one turn, one prefix group and blocks of one token");
  }
  if (config.turns * std::max(1.0, double{1} * config.fan_out) > kTurnsAndBranchesMax) {
    return refuse(fmt::format("a session has at most {} requests", kTurnsAndBranchesMax));
  }
  return {};
}

}  // namespace

std::vector<std::string> arrival_names() {
  return {"constant", "poisson", "gamma", "diurnal", "bursts"};
}

std::vector<std::string> length_names() {
  return {"fixed", "normal", "lognormal", "exponential"};
}

Result<std::unique_ptr<TraceSource>> make_workload(const WorkloadConfig& config) {
  STATOR_CHECK(validate(config));
  return std::make_unique<Workload>(config);
}

}  // namespace stator::simulator
