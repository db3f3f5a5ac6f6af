// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/planning/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace stator::planner {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Duration duration_of(double s) {
  return Duration(std::llround(s * 1e9));
}

double percentile(std::vector<float> values, double quantile) {
  if (values.empty()) {
    return 0;
  }
  const auto at =
      static_cast<ptrdiff_t>(std::round(static_cast<double>(values.size() - 1) * quantile));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<size_t>(at)];
}

/// Notes what became of requests.
class Collector {
 public:
  explicit Collector(const PlannerConfig& config) : config_(config) {}

  void add(const simulator::RequestRecord& record) {
    const double ttft = seconds(record.first_token - record.arrival) * 1e3;
    const double itl = record.output_tokens > 1 ? seconds(record.last_token - record.first_token) *
                                                      1e3 / (record.output_tokens - 1)
                                                : 0;
    const bool failed = record.status != simulator::RequestStatus::kCompleted;
    const bool missed = failed || ttft > config_.ttft_ms || itl > config_.itl_ms;
    ++requests;
    misses += missed ? 1 : 0;
    if (!failed) {
      ttft_ms.push_back(static_cast<float>(ttft));
      itl_ms.push_back(static_cast<float>(itl));
    }
    const auto minute =
        static_cast<size_t>(seconds(record.arrival.time_since_epoch()) / kStretch_s);
    if (minute < kStretchesMax) {
      stretches.resize(std::max(stretches.size(), minute + 1));
      Stretch& stretch = stretches[minute];
      ++stretch.arrivals;
      stretch.misses += missed ? 1 : 0;
      stretch.ttft_ms.push_back(static_cast<float>(ttft));
      stretch.itl_ms.push_back(static_cast<float>(itl));
    }
    window_input += record.input_tokens;
    window_output += record.output_tokens;
    window_cached += record.cached_tokens;
    window_missed += missed ? 1 : 0;
    ++window_ended;
    if (sample.size() < kSampleMax) {
      sample.push_back({.input_tokens = double{1} * record.input_tokens,
                        .output_tokens = double{1} * record.output_tokens,
                        .cached_tokens = double{1} * record.cached_tokens,
                        .at_s = seconds(record.arrival.time_since_epoch())});
    }
  }

  Traffic take_window(double duration_s, double arrivals) {
    Traffic out{.duration_s = duration_s, .requests = arrivals};
    if (window_ended > 0) {
      mean_input_ = window_input / window_ended;
      mean_output_ = window_output / window_ended;
      hit_rate_ = std::clamp(window_cached / std::max(1.0, window_input), 0.0, 1.0);
    }
    out.input_tokens = mean_input_;
    out.output_tokens = mean_output_;
    out.kv_hit_rate = hit_rate_;
    out.ended = window_ended;
    out.missed = window_missed;
    out.sample = std::move(sample);
    sample.clear();
    window_input = window_output = window_cached = window_ended = window_missed = 0;
    return out;
  }

  static constexpr double kStretch_s = 15;
  static constexpr size_t kStretchesMax = 100'000;
  struct Stretch {
    uint64_t arrivals = 0, misses = 0;
    std::vector<float> ttft_ms, itl_ms;
  };
  uint64_t requests = 0, misses = 0;
  std::vector<float> ttft_ms, itl_ms;
  std::vector<Stretch> stretches;

 private:
  const PlannerConfig& config_;
  double window_input = 0, window_output = 0, window_cached = 0, window_ended = 0,
         window_missed = 0;
  double mean_input_ = 0, mean_output_ = 0, hit_rate_ = 0;
  std::vector<RequestLength> sample;
};

PoolState pool_of(const simulator::PoolView& view,
                  const std::vector<simulator::WorkerView>& workers, bool prompts,
                  double mean_input) {
  PoolState pool{.ready = view.ready,
                 .expected = view.ready + view.starting,
                 .draining = view.draining,
                 .queued = static_cast<double>(view.queued)};
  for (const simulator::WorkerView& worker : workers) {
    if (worker.computes_prompts == prompts) {
      pool.engines.push_back({.id = worker.worker,
                              .queued_prefill_tokens = worker.waiting * mean_input,
                              .running = double{1} * worker.running,
                              .decode_kv_tokens = static_cast<double>(worker.kv_tokens)});
    }
  }
  return pool;
}

/// The policy as the simulation's planner.
class Adapter final : public simulator::Planner {
 public:
  Adapter(PlannerCore& core, Collector& collector, DryRunResult& result, const Clock* clock)
      : core_(core), collector_(collector), result_(result), clock_(clock) {}

  std::optional<TimePoint> first() const override {
    return TimePoint(duration_of(core_.interval_s()));
  }

  simulator::ScalingDecision decide(const simulator::FleetView& fleet) override {
    Inputs inputs;
    inputs.now_s = seconds(fleet.now.time_since_epoch());
    inputs.traffic =
        collector_.take_window(seconds(fleet.window), static_cast<double>(fleet.arrivals));
    inputs.decode = pool_of(fleet.decode, fleet.workers, false, inputs.traffic->input_tokens);
    inputs.prefill = pool_of(fleet.prefill, fleet.workers, true, inputs.traffic->input_tokens);
    const TimePoint begin = clock_ == nullptr ? TimePoint() : clock_->now();
    const Decision decision = core_.tick(inputs);
    if (clock_ != nullptr) {
      result_.tick_ms_max = std::max(result_.tick_ms_max, seconds(clock_->now() - begin) * 1e3);
    }
    ++result_.ticks;
    if (decision.estimated_ttft_ms > 0) {
      const double weight = inputs.traffic->requests;
      result_.predicted_requests += weight;
      result_.predicted_ttft_ms += weight * decision.estimated_ttft_ms;
      result_.predicted_itl_ms += weight * decision.estimated_itl_ms;
    }
    if (result_.journal.size() < kJournalBytesMax) {
      result_.journal += journal_line(inputs, decision);
    }
    note(inputs.now_s, inputs.decode.expected, decision.workers.value_or(inputs.decode.expected),
         decision.text);
    if (inputs.prefill.expected > 0) {
      note(inputs.now_s, inputs.prefill.expected,
           decision.prefill_workers.value_or(inputs.prefill.expected), decision.text);
    }
    simulator::ScalingDecision out{.workers = decision.workers,
                                   .next = TimePoint(duration_of(decision.next_s))};
    if (decision.prefill_workers && inputs.prefill.expected > 0) {
      out.prefill_workers = decision.prefill_workers;
    }
    return out;
  }

 private:
  void note(double now_s, uint32_t from, uint32_t to, const std::string& text) {
    result_.workers_max = std::max({result_.workers_max, from, to});
    if (from == to) {
      return;
    }
    ++result_.scaling_events;
    if (result_.events.size() < kEventsMax) {
      result_.events.push_back({.time_s = now_s, .from = from, .to = to, .text = text});
    }
  }

  PlannerCore& core_;
  Collector& collector_;
  DryRunResult& result_;
  const Clock* clock_;
};

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) {
    sum += value;
  }
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// Stretches of the collector, joined until there are few enough to draw.
std::vector<DryRunPoint> join(const Collector& collector, const simulator::Report& report,
                              uint32_t gpus) {
  std::vector<DryRunPoint> out;
  const size_t count = collector.stretches.size();
  const size_t each = std::max<size_t>(1, (count + kPointsMax - 1) / kPointsMax);
  double gpu_hours = 0;
  size_t line = 0;
  for (size_t begin = 0; begin < count; begin += each) {
    DryRunPoint point{.begin_s = static_cast<double>(begin) * Collector::kStretch_s};
    std::vector<float> ttft, itl;
    for (size_t i = begin; i < std::min(count, begin + each); ++i) {
      const Collector::Stretch& stretch = collector.stretches[i];
      point.arrivals += stretch.arrivals;
      point.misses += stretch.misses;
      ttft.insert(ttft.end(), stretch.ttft_ms.begin(), stretch.ttft_ms.end());
      itl.insert(itl.end(), stretch.itl_ms.begin(), stretch.itl_ms.end());
    }
    point.ttft_ms = percentile(std::move(ttft), 0.95);
    point.itl_ms = percentile(std::move(itl), 0.95);
    while (line + 1 < report.timeline.size() &&
           report.timeline[line + 1].begin_s <= point.begin_s) {
      ++line;
    }
    point.workers = report.timeline.empty() ? 0 : report.timeline[line].workers;
    gpu_hours += point.workers * gpus * static_cast<double>(each) * Collector::kStretch_s / 3600;
    point.gpu_hours = gpu_hours;
    out.push_back(point);
  }
  return out;
}

}  // namespace

Result<DryRunResult> dry_run(const DryRunConfig& config, const perf::TimingModel& timing,
                             simulator::TraceSource& trace, const Clock* tick_clock) {
  STATOR_TRY(const auto core, PlannerCore::create(config.planner, timing));
  STATOR_TRY(const auto cluster, simulator::Cluster::create(config.fleet, timing));
  DryRunResult result;
  result.policy = name_of(config.planner);
  result.workers_max = config.fleet.workers;
  Collector collector(config.planner);
  cluster->set_planner(std::make_unique<Adapter>(*core, collector, result, tick_clock));
  simulator::Recorder recorder(
      cluster->worker_count(), {},
      [&](const simulator::RequestRecord& record) { collector.add(record); });
  STATOR_CHECK(cluster->run(trace, recorder));
  simulator::Report report = recorder.make_report();
  cluster->describe(report);
  if (collector.requests == 0) {
    return Error(Code::kInvalidArgument, "the trace has no requests");
  }
  result.requests = collector.requests;
  result.sla_misses = collector.misses;
  result.duration_s = seconds(cluster->now().time_since_epoch());
  const double worker_seconds = report.decode_worker_seconds + report.prefill_worker_seconds;
  result.gpu_seconds = worker_seconds * config.fleet.gpus_per_worker;
  result.workers_mean = result.duration_s > 0 ? worker_seconds / result.duration_s : 0;
  result.points = join(collector, report, config.fleet.gpus_per_worker);
  result.ttft_ms_mean = mean_of(collector.ttft_ms);
  result.itl_ms_mean = mean_of(collector.itl_ms);
  result.predicted_ttft_ms /= std::max(1.0, result.predicted_requests);
  result.predicted_itl_ms /= std::max(1.0, result.predicted_requests);
  result.ttft_ms_p50 = percentile(collector.ttft_ms, 0.5);
  result.ttft_ms_p95 = percentile(collector.ttft_ms, 0.95);
  result.itl_ms_p50 = percentile(collector.itl_ms, 0.5);
  result.itl_ms_p95 = percentile(collector.itl_ms, 0.95);
  return result;
}

Result<uint32_t> initial_workers(const PlannerConfig& config, const perf::TimingModel& timing,
                                 simulator::TraceSource& trace, double speedup) {
  constexpr double kFirst_s = 60;
  simulator::TraceRequest request;
  double count = 0, input = 0, output = 0;
  while (true) {
    STATOR_TRY(const bool found, trace.next(request));
    if (!found || seconds(request.arrival) > kFirst_s * speedup) {
      break;
    }
    ++count;
    input += request.input_tokens;
    output += request.output_tokens;
  }
  if (count == 0) {
    return std::max(1U, config.min_workers);
  }
  const EngineTiming engine(timing, config.max_kv_tokens);
  const Capacity capacity =
      find_capacity(engine, {.input_tokens = input / count,
                             .output_tokens = output / count,
                             .ttft_ms = config.ttft_ms,
                             .itl_ms = config.itl_ms,
                             .max_num_batched_tokens = config.max_num_batched_tokens,
                             .max_num_seqs = config.max_num_seqs});
  const double need = std::ceil(count / kFirst_s / std::max(capacity.requests_per_s, 1e-9));
  return static_cast<uint32_t>(
      std::clamp<double>(need, std::max(1U, config.min_workers), config.max_workers));
}

}  // namespace stator::planner
