// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/json/value.h"
#include "stator/lab/planning/dry_run.h"
#include "stator/report/html_page.h"
#include "stator/report/svg_plot.h"
#include "stator/text/html.h"

namespace stator::planner {
namespace {

json::Value to_json(const DryRunResult& r, bool details) {
  json::Value out = json::Value::object();
  out["policy"] = r.policy;
  out["requests"] = r.requests;
  out["sla_misses"] = r.sla_misses;
  out["gpu_seconds"] = r.gpu_seconds;
  out["scaling_events"] = r.scaling_events;
  out["ticks"] = r.ticks;
  out["duration_s"] = r.duration_s;
  out["gpu_hours"] = r.gpu_seconds / 3600;
  out["workers_mean"] = r.workers_mean;
  out["workers_max"] = r.workers_max;
  out["ttft_ms_p50"] = r.ttft_ms_p50;
  out["ttft_ms_p95"] = r.ttft_ms_p95;
  out["ttft_ms_mean"] = r.ttft_ms_mean;
  out["predicted_ttft_ms_mean"] = r.predicted_ttft_ms;
  out["itl_ms_p50"] = r.itl_ms_p50;
  out["itl_ms_p95"] = r.itl_ms_p95;
  out["itl_ms_mean"] = r.itl_ms_mean;
  out["predicted_itl_ms_mean"] = r.predicted_itl_ms;
  if (!details) {
    return out;
  }
  json::Value& events = out["events"] = json::Value::array();
  for (const ScalingEvent& event : r.events) {
    events.push_back(json::Value::object(
        {{"time_s", event.time_s}, {"from", event.from}, {"to", event.to}, {"text", event.text}}));
  }
  json::Value& points = out["timeline"] = json::Value::array();
  for (const DryRunPoint& p : r.points) {
    points.push_back(json::Value::object({{"begin_s", p.begin_s},
                                          {"arrivals", p.arrivals},
                                          {"workers", p.workers},
                                          {"ttft_ms_p95", p.ttft_ms},
                                          {"itl_ms_p95", p.itl_ms},
                                          {"sla_misses", p.misses},
                                          {"gpu_hours", p.gpu_hours}}));
  }
  return out;
}

template <typename Value>
std::string plot(const std::vector<DryRunResult>& results, std::string title, std::string unit,
                 const Value& value) {
  report::Plot out{std::move(title), "minutes", std::move(unit), false, {}};
  for (const DryRunResult& result : results) {
    report::PlotLine line{result.policy, {}};
    for (const DryRunPoint& point : result.points) {
      line.points.emplace_back(point.begin_s / 60, value(point));
    }
    if (!line.points.empty()) {
      out.lines.push_back(std::move(line));
    }
  }
  return report::draw(out);
}

}  // namespace

std::string render_json(const PlannerConfig& config, const std::vector<DryRunResult>& results) {
  json::Value out = to_json(results.front(), true);
  out["ttft_goal_ms"] = config.ttft_ms;
  out["itl_goal_ms"] = config.itl_ms;
  out["start_up_s"] = config.start_up_s;
  json::Value& compared = out["compared"] = json::Value::array();
  for (size_t i = 1; i < results.size(); ++i) {
    compared.push_back(to_json(results[i], false));
  }
  return json::to_pretty_text(out) + "\n";
}

std::string render_table(const std::vector<DryRunResult>& results) {
  std::string out =
      fmt::format("{:<12} {:>9} {:>9} {:>12} {:>8} {:>9} {:>10} {:>9}\n", "policy", "requests",
                  "misses", "GPU-seconds", "events", "workers", "TTFT p95", "ITL p95");
  for (const DryRunResult& r : results) {
    out += fmt::format("{:<12} {:>9} {:>9} {:>12.0f} {:>8} {:>9.2f} {:>10.1f} {:>9.2f}\n", r.policy,
                       r.requests, r.sla_misses, r.gpu_seconds, r.scaling_events, r.workers_mean,
                       r.ttft_ms_p95, r.itl_ms_p95);
  }
  return out;
}

std::string render_html(const PlannerConfig& config, const std::vector<DryRunResult>& results) {
  std::string out = report::page_begin("stator planner");
  out += fmt::format(
      "<h1>What the planner would have done</h1>\n<p>Goals: TTFT {} ms, ITL {} ms; a worker takes "
      "{} s to "
      "start.</p>\n<table><tr><th>policy</th><th>requests</th><th>misses</th><th>GPU-hours</"
      "th><th>events</th><th>TTFT p95 ms</th><th>ITL p95 ms</th></tr>\n",
      config.ttft_ms, config.itl_ms, config.start_up_s);
  for (const DryRunResult& r : results) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2f}</td><td>{}</td><td>{:.0f}</td><td>{:.1f}</"
        "td></tr>\n",
        r.policy, r.requests, r.sla_misses, r.gpu_seconds / 3600, r.scaling_events, r.ttft_ms_p95,
        r.itl_ms_p95);
  }
  out += "</table>\n<div class=\"plots\">\n";
  out += plot({results.front()}, "Load", "requests per stretch",
              [](const DryRunPoint& p) { return static_cast<double>(p.arrivals); });
  out += plot(results, "Workers", "", [](const DryRunPoint& p) { return p.workers; });
  out += plot(results, "TTFT, p95", "ms", [](const DryRunPoint& p) { return p.ttft_ms; });
  out += plot(results, "ITL, p95", "ms", [](const DryRunPoint& p) { return p.itl_ms; });
  out += plot(results, "Requests that missed a goal", "",
              [](const DryRunPoint& p) { return static_cast<double>(p.misses); });
  out += plot(results, "GPU-hours", "", [](const DryRunPoint& p) { return p.gpu_hours; });
  out += "</div>\n<h2>Decisions</h2>\n<table><tr><th>time</th><th>what and why</th></tr>\n";
  for (const ScalingEvent& event : results.front().events) {
    out += fmt::format("<tr><td>{:.0f} s</td><td style=\"text-align:left\">{}</td></tr>\n",
                       event.time_s, text::escape_html(event.text));
  }
  out += "</table>\n" + std::string(report::page_end());
  return out;
}

}  // namespace stator::planner
