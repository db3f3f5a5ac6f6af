// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/planner_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "stator/json/value.h"
#include "stator/text/html.h"

namespace stator::scaling {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Planner</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:62rem;padding:0 1rem;
color:#222;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:1.6rem}table{border-collapse:collapse}
td,th{border-bottom:1px solid #ddd;padding:.2rem .7rem .2rem 0;text-align:right}
td:first-child,th:first-child{text-align:left}
svg{width:100%;height:120px;background:#f7f7f9}.a{stroke:#1f6fb4}.b{stroke:#d1661b}
.goal{stroke:#999;stroke-dasharray:4 4}
polyline,line{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke}
.legend{color:#555;font-size:.85rem}
</style></head><body>
)";
constexpr std::string_view kRefresh = "<meta http-equiv=\"refresh\" content=\"2\">\n";

using Series = std::function<double(const TickPoint&)>;

/// Two lines over the last ticks, and a dashed one for the goal.
std::string plot(const PlannerView& view, std::string_view title, const Series& seen,
                 const Series& expected, double goal) {
  double most = goal > 0 ? goal * 1.2 : 1;
  for (const TickPoint& point : view.history) {
    most = std::max({most, seen(point), expected(point)});
  }
  const auto line = [&](const Series& series, std::string_view name) {
    std::string points;
    size_t x = 0;
    for (const TickPoint& point : view.history) {
      points += fmt::format("{},{:.2f} ", x++, 100 - 96 * series(point) / most);
    }
    return fmt::format("<polyline class=\"{}\" points=\"{}\"/>", name, points);
  };
  std::string out = fmt::format(
      "<h2>{}</h2><svg viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\">", title,
      std::max<size_t>(1, view.history.size() - (view.history.empty() ? 0 : 1)));
  if (goal > 0) {
    out += fmt::format("<line class=\"goal\" x1=\"0\" x2=\"{}\" y1=\"{:.2f}\" y2=\"{:.2f}\"/>",
                       std::max<size_t>(kHistoryMax, view.history.size()), 100 - 96 * goal / most,
                       100 - 96 * goal / most);
  }
  return out + line(seen, "a") + line(expected, "b") +
         fmt::format("</svg><p class=\"legend\">blue: observed, orange: planner; top {:.4g}</p>\n",
                     most);
}

std::string plots(const PlannerView& view) {
  std::string out;
  out += plot(
      view, "Requests per second", [](const TickPoint& p) { return p.requests_per_s; },
      [](const TickPoint& p) { return p.predicted_per_s; }, 0);
  out += plot(
      view, "Workers: ready, wanted", [](const TickPoint& p) { return double{1} * p.ready; },
      [](const TickPoint& p) { return double{1} * p.wanted; }, 0);
  out += plot(
      view, "TTFT, ms: mean observed, expected", [](const TickPoint& p) { return p.ttft_ms; },
      [](const TickPoint& p) { return p.expected_ttft_ms; }, view.config.ttft_ms);
  out += plot(
      view, "ITL, ms: mean observed, expected", [](const TickPoint& p) { return p.itl_ms; },
      [](const TickPoint& p) { return p.expected_itl_ms; }, view.config.itl_ms);
  return out;
}

std::string alternatives(const planner::Decision& decision) {
  if (decision.alternatives.empty()) {
    return {};
  }
  std::string out =
      "<h2>What was compared</h2><table><tr><th>workers</th><th>TTFT, ms</th><th>ITL, ms</th>"
      "<th>misses</th><th>GPU-s</th></tr>\n";
  for (const planner::Alternative& each : decision.alternatives) {
    out += fmt::format(
        "<tr><td>{}</td><td>{:.0f}</td><td>{:.1f}</td><td>{:.2f} %</td><td>{:.0f}</td></tr>\n",
        each.workers, each.ttft_ms, each.itl_ms, each.miss_ratio * 100, each.gpu_seconds);
  }
  return out + "</table>\n";
}

json::Value parsed(const std::string& text) {
  auto value = json::parse(text);
  return value ? std::move(*value) : json::Value();
}

json::Value history_of(const PlannerView& view) {
  json::Value out = json::Value::array();
  for (const TickPoint& p : view.history) {
    out.push_back({{"unix_s", p.unix_s},
                   {"requests_per_s", p.requests_per_s},
                   {"predicted_requests_per_s", p.predicted_per_s},
                   {"ready", p.ready},
                   {"wanted", p.wanted},
                   {"observed_ttft_ms", p.ttft_ms},
                   {"predicted_ttft_ms", p.expected_ttft_ms},
                   {"observed_itl_ms", p.itl_ms},
                   {"predicted_itl_ms", p.expected_itl_ms},
                   {"reason", p.reason}});
  }
  return out;
}

}  // namespace

std::string render_json(const PlannerView& view) {
  json::Value out = json::Value::object();
  out["policy"] = planner::name_of(view.config);
  out["connector"] = view.connector;
  out["advisory"] = view.advisory;
  out["goals"] = {{"ttft_ms", view.config.ttft_ms},
                  {"itl_ms", view.config.itl_ms},
                  {"quantile", view.config.quantile}};
  out["limits"] = {{"min_workers", view.config.min_workers},
                   {"max_workers", view.config.max_workers},
                   {"min_gpu_budget", view.config.min_gpu_budget},
                   {"max_gpu_budget", view.config.max_gpu_budget}};
  const planner::PoolState& pool = view.inputs.decode;
  out["workers"] = {{"ready", pool.ready},
                    {"expected", pool.expected},
                    {"draining", pool.draining},
                    {"prefill_ready", view.inputs.prefill.ready},
                    {"prefill_expected", view.inputs.prefill.expected}};
  const Observed& o = view.observed;
  out["observed"] = {{"requests_per_s", o.requests_per_s},
                     {"ttft_ms", o.ttft_ms},
                     {"itl_ms", o.itl_ms},
                     {"request_duration_s", o.duration_s},
                     {"input_tokens", o.input_tokens},
                     {"output_tokens", o.output_tokens},
                     {"kv_hit_rate", o.kv_hit_rate},
                     {"accept_length", o.accept_length}};
  out["calibration"] = {{"passes", view.calibration.passes},
                        {"base_error_percent", view.calibration.base_percent},
                        {"calibrated_error_percent", view.calibration.calibrated_percent}};
  out["ticks"] = view.ticks;
  out["changes"] = view.changes;
  out["failures"] = view.failures;
  out["ticks_without_decision"] = view.skipped;
  out["gpu_hours"] = view.gpu_hours;
  out["tick_seconds"] = view.tick_seconds;
  json::Value& decision = out["last_decision"] = parsed(planner::render_json(view.decision));
  decision["decided_at_unix_s"] = view.decided_unix_s;
  decision["executed"] = view.executed;
  decision["problem"] = view.problem;
  out["last_inputs"] = parsed(planner::render_json(view.inputs));
  out["history"] = history_of(view);
  return json::to_text(out);
}

std::string render_html(const PlannerView& view) {
  std::string out = std::string(kHead) + std::string(kRefresh);
  const planner::PoolState& pool = view.inputs.decode;
  out += fmt::format("<h1>Planner: {} workers ready, {} wanted{}</h1>\n<p>{}</p>\n", pool.ready,
                     view.decision.workers.value_or(pool.expected),
                     view.advisory ? " (advisory: nothing is changed)" : "",
                     text::escape_html(view.decision.text));
  if (!view.problem.empty()) {
    out += fmt::format("<p><b>{}</b></p>\n", text::escape_html(view.problem));
  }
  out += fmt::format(
      "<p class=\"legend\">policy {}, connector {}, goals {:.4g} ms to the first token and {:.4g} "
      "ms per further one, {} ticks, {} changes, {:.2f} GPU-hours; step model off by {:.1f} % "
      "({} passes)</p>\n",
      text::escape_html(planner::name_of(view.config)), text::escape_html(view.connector),
      view.config.ttft_ms, view.config.itl_ms, view.ticks, view.changes, view.gpu_hours,
      view.calibration.calibrated_percent, view.calibration.passes);
  return out + plots(view) + alternatives(view.decision) + "</body></html>\n";
}

std::string render_report(const PlannerView& view, const std::vector<TickPoint>& changes) {
  std::string out(kHead);
  const double hours =
      view.history.empty() ? 0 : (view.history.back().unix_s - view.history.front().unix_s) / 3600;
  out += fmt::format(
      "<h1>Planner: {:.1f} hours</h1>\n<p class=\"legend\">policy {}, connector {}, goals {:.4g} "
      "ms "
      "to the first token and {:.4g} ms per further one, {} ticks, {} changes, {:.2f} "
      "GPU-hours</p>\n",
      hours, text::escape_html(planner::name_of(view.config)), text::escape_html(view.connector),
      view.config.ttft_ms, view.config.itl_ms, view.ticks, view.changes, view.gpu_hours);
  out += plots(view) + "<h2>Changes</h2><table><tr><th>after, s</th><th>decision</th></tr>\n";
  for (const TickPoint& change : changes) {
    out +=
        fmt::format("<tr><td>{:.0f}</td><td>{}</td></tr>\n",
                    change.unix_s - view.history.front().unix_s, text::escape_html(change.reason));
  }
  return out + "</table></body></html>\n";
}

}  // namespace stator::scaling
