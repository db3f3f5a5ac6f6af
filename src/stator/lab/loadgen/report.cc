// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stator::loadgen {
namespace {

constexpr double kKeepUpMin = 0.95;
constexpr double kErrorPercentMax = 1;
constexpr double kGoodShareMin = 0.99;

/// Three digits that matter.
std::string number(double value) {
  if (value != 0 && std::abs(value) < 10) {
    return fmt::format("{:.3f}", value);
  }
  return fmt::format("{:.{}f}", value, std::abs(value) < 100 ? 2 : std::abs(value) < 1000 ? 1 : 0);
}

void add_metrics(const Figures& figures, std::string& out) {
  out += fmt::format("{:<44}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "", "avg", "min", "p50",
                     "p90", "p99", "max", "std");
  for (const Metric& metric : figures.metrics) {
    if (!metric.single) {
      const Summary& v = metric.values;
      out += fmt::format("{:<44}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
                         fmt::format("{} ({})", metric.header, metric.unit), number(v.avg),
                         number(v.min), number(v.p50), number(v.p90), number(v.p99), number(v.max),
                         number(v.std));
    }
  }
  for (const Metric& metric : figures.metrics) {
    if (metric.single) {
      out += fmt::format("{:<44}{:>11}\n", fmt::format("{} ({})", metric.header, metric.unit),
                         number(metric.values.avg));
    }
  }
}

void add_sweep(const Report& report, std::string& out) {
  out += fmt::format("{:>12}{:>14}{:>12}{:>12}{:>12}{:>12}  {}\n", "requests/s", "answered/s",
                     "TTFT p50", "TTFT p99", "latency p50", "latency p99", "sustained");
  for (const RunResult& run : report.runs) {
    const Metric* first = run.figures.find("time_to_first_token_from_schedule");
    const Metric* latency = run.figures.find("request_latency_from_schedule");
    const Summary none;
    const Summary& f = first != nullptr ? first->values : none;
    const Summary& l = latency != nullptr ? latency->values : none;
    out +=
        fmt::format("{:>12}{:>14}{:>12}{:>12}{:>12}{:>12}  {}\n", number(run.offered_per_s),
                    number(run.figures.value("request_throughput")), number(f.p50), number(f.p99),
                    number(l.p50), number(l.p99), is_sustained(run) ? "yes" : "no");
  }
  out += fmt::format("highest sustained rate: {} requests/s (latencies from the schedule, in ms)\n",
                     number(report.saturation_per_s));
}

}  // namespace

std::vector<RepeatedMetric> repeat_metrics(const std::vector<RunResult>& runs) {
  std::vector<RepeatedMetric> out;
  if (runs.empty()) {
    return out;
  }
  for (const Metric& metric : runs.front().figures.metrics) {
    std::vector<double> values;
    for (const RunResult& run : runs) {
      if (const Metric* same = run.figures.find(metric.tag)) {
        values.push_back(same->values.avg);
      }
    }
    out.push_back({metric.tag, metric.unit, confidence_95(values)});
  }
  return out;
}

bool is_sustained(const RunResult& run) {
  const Metric* good = run.figures.find("good_request_fraction_from_schedule");
  return !run.gave_up && !run.log_full && run.keep_up >= kKeepUpMin &&
         run.figures.value("request_count") > 0 &&
         run.figures.value("request_error_rate") <= kErrorPercentMax &&
         (good == nullptr || good->values.avg >= kGoodShareMin);
}

const RunResult& main_run(const Report& report) {
  if (report.is_sweep) {
    const RunResult* best = nullptr;
    for (const RunResult& run : report.runs) {
      if (is_sustained(run) && (best == nullptr || run.offered_per_s > best->offered_per_s)) {
        best = &run;
      }
    }
    if (best != nullptr) {
      return *best;
    }
  }
  return report.runs.back();
}

std::vector<std::string> reasons_not_to_publish(const Report& report) {
  // Steps of a sweep beyond the first one not sustained decide nothing: overload may have filled
  // the generator's own tables.
  double rate_max = INFINITY;
  for (const RunResult& run : report.runs) {
    if (report.is_sweep && !is_sustained(run)) {
      rate_max = std::min(rate_max, run.offered_per_s);
    }
  }
  std::vector<std::string> reasons;
  for (size_t i = 0; i < report.runs.size(); ++i) {
    const RunResult& run = report.runs[i];
    for (const std::string& reason : run.client_bound) {
      if (run.offered_per_s <= rate_max) {
        reasons.push_back(report.runs.size() > 1 ? fmt::format("run {}: {}", i + 1, reason)
                                                 : reason);
      }
    }
  }
  return reasons;
}

std::vector<std::string> notes_of(const Report& report) {
  const RunResult& run = main_run(report);
  const Figures& figures = run.figures;
  std::vector<std::string> notes;
  if (figures.warm_up_requests > 0) {
    notes.push_back(fmt::format("warm-up: the first {:.2f} s ({} requests) do not count",
                                figures.warm_up_s, figures.warm_up_requests));
  }
  if (!figures.steady) {
    notes.emplace_back(
        "warm-up: latencies never became steady; run longer, or the load is beyond the server");
  }
  if (figures.usage_missing) {
    notes.emplace_back(
        "tokens: the server reports no usage for some answers; chunks were counted instead");
  }
  if (const auto cut = figures.outcomes.find("unfinished"); cut != figures.outcomes.end()) {
    notes.push_back(fmt::format(
        "unfinished: {} requests were cut off at the end of the run and are in no figure: the "
        "latencies are those of the faster ones (--drain-timeout waits longer)",
        cut->second));
  }
  if (report.asked_for_streams && figures.whole > 0) {
    notes.push_back(fmt::format(
        "streams: {} of {} answers came whole although streams were asked for; they have no times "
        "of tokens",
        figures.whole, figures.whole + figures.streamed));
  }
  if (run.client.reconnects > 0) {
    notes.push_back(fmt::format(
        "connections: {} requests were sent again because the server had closed the connection "
        "they were sent on",
        run.client.reconnects));
  }
  if (run.client.held_back > 0) {
    notes.push_back(
        fmt::format("limit: {} requests waited because --in-flight-max were in flight; the "
                    "_from_schedule figures contain that wait",
                    run.client.held_back));
  }
  if (run.log_full) {
    notes.emplace_back("limit: the run ended at --records-max requests");
  }
  if (run.gave_up) {
    notes.emplace_back("the run ended early: too many requests failed in a row (--failures-max)");
  }
  if (run.interrupted) {
    notes.emplace_back("the run was interrupted");
  }
  return notes;
}

std::string to_text(const Report& report) {
  std::string out;
  const RunResult& run = main_run(report);
  if (report.is_sweep) {
    add_sweep(report, out);
    out += '\n';
  }
  add_metrics(run.figures, out);
  for (const std::string& note : notes_of(report)) {
    out += note + '\n';
  }
  for (const auto& [text, count] : run.figures.errors) {
    out += fmt::format("failed {} times: {}\n", count, text);
  }
  if (!report.is_sweep && report.runs.size() > 1) {
    out += fmt::format("\n{} runs, mean and 95 % confidence interval:\n", report.runs.size());
    for (const RepeatedMetric& metric : repeat_metrics(report.runs)) {
      const Confidence& c = metric.confidence;
      out += fmt::format("  {:<42}{:>11}   {} to {} {}\n", metric.tag, number(c.mean),
                         number(c.low), number(c.high), metric.unit);
    }
  }
  const ClientFigures& client = run.client;
  out += fmt::format(
      "generator: {} thread{}, {:.0f} % busy, {:.1f} µs of CPU per request, sent {} ms late at "
      "p99\n",
      client.threads, client.threads == 1 ? "" : "s", 100 * client.busy_share,
      client.cpu_us_per_request, number(client.send_delay_p99_ms));
  for (const std::string& reason : reasons_not_to_publish(report)) {
    out += "NOT VALID, the generator was the bottleneck: " + reason + "\n";
  }
  return out;
}

}  // namespace stator::loadgen
