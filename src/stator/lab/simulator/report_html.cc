// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "stator/report/html_page.h"
#include "stator/report/svg_plot.h"
#include "stator/text/html.h"

namespace stator::simulator {
namespace {

using report::Plot;
using report::PlotLine;
using text::escape_html;
using Reports = std::span<const NamedReport>;

std::string_view plural(uint64_t count) {
  return count == 1 ? "" : "s";
}

std::string number(double value) {
  const double size = std::abs(value);
  return size >= 1e6   ? fmt::format("{:.2f} M", value / 1e6)
         : size >= 1e4 ? fmt::format("{:.1f} k", value / 1e3)
         : size >= 100 ? fmt::format("{:.0f}", value)
                       : fmt::format("{:.3g}", value);
}

Plot cumulative(
    Reports reports, std::string title,
    std::initializer_list<std::pair<std::string_view, std::vector<double> Report::*>> of) {
  Plot plot{std::move(title), "ms", "% at most", true, {}};
  for (const NamedReport& each : reports) {
    for (const auto& [name, curve] : of) {
      const std::vector<double>& values = each.report.*curve;
      PlotLine line{reports.size() == 1 ? std::string(name)
                    : of.size() == 1    ? each.name
                                        : fmt::format("{}, {}", each.name, name),
                    {}};
      for (size_t i = 0; i < values.size(); ++i) {
        line.points.emplace_back(
            values[i], 100.0 * static_cast<double>(i) / static_cast<double>(values.size() - 1));
      }
      if (!line.points.empty()) {
        plot.lines.push_back(std::move(line));
      }
    }
  }
  return plot;
}

struct Series {
  std::string_view name;
  double TimelinePoint::* field;
  double scale = 1;
};

Plot over_time(Reports reports, std::string title, std::string unit,
               std::initializer_list<Series> of) {
  Plot plot{std::move(title), "simulated seconds", std::move(unit), false, {}};
  for (const NamedReport& each : reports) {
    for (const Series& series : of) {
      PlotLine line{reports.size() == 1 ? std::string(series.name)
                    : of.size() == 1    ? each.name
                                        : fmt::format("{}, {}", each.name, series.name),
                    {}};
      for (const TimelinePoint& point : each.report.timeline) {
        line.points.emplace_back(point.begin_s, point.*series.field * series.scale);
      }
      if (!line.points.empty()) {
        plot.lines.push_back(std::move(line));
      }
    }
  }
  return plot;
}

/// Each worker's share as a line over the workers, busiest first, so that a hundred or ten thousand
/// of them are read the same way.
Plot per_worker(Reports reports, std::string title, std::string unit,
                double (*value)(const WorkerReport&, const Report&)) {
  Plot plot{std::move(title), "workers, highest first", std::move(unit), false, {}};
  for (const NamedReport& each : reports) {
    std::vector<double> values;
    for (const WorkerReport& worker : each.report.per_worker) {
      values.push_back(value(worker, each.report));
    }
    std::ranges::sort(values, std::greater<>());
    PlotLine line{reports.size() == 1 ? plot.y_label : each.name, {}};
    const size_t step = values.size() / 1000 + 1;
    for (size_t i = 0; i < values.size(); i += step) {
      // A step per worker: what a bar would show.
      line.points.emplace_back(static_cast<double>(i), values[i]);
      line.points.emplace_back(static_cast<double>(std::min(i + step, values.size())), values[i]);
    }
    plot.lines.push_back(std::move(line));
  }
  return plot;
}

std::string plots_of(Reports reports) {
  std::string out = "<h2>Latency</h2><div class=\"plots\">\n";
  out += draw(cumulative(reports, "Time to first token", {{"TTFT", &Report::ttft_curve}}));
  out += reports.size() == 1 ? draw(cumulative(reports, "Between tokens",
                                               {{"mean of a request", &Report::tpot_curve},
                                                {"every gap", &Report::itl_curve}}))
                             : draw(cumulative(reports, "Mean time per further token",
                                               {{"TPOT", &Report::tpot_curve}}));
  out += draw(cumulative(reports, "Whole answer", {{"latency", &Report::e2e_curve}}));
  out += "</div>\n<h2>Over time</h2><div class=\"plots\">\n";
  using Point = TimelinePoint;
  const bool single = reports.size() == 1;
  out += single ? draw(over_time(
                      reports, "Requests", "requests/s",
                      {{"arrived", &Point::arrivals_per_s}, {"completed", &Point::requests_per_s}}))
                : draw(over_time(reports, "Completed requests", "requests/s",
                                 {{"completed", &Point::requests_per_s}}));
  out += single
             ? draw(over_time(reports, "Waiting", "requests",
                              {{"in engines", &Point::waiting}, {"in the router", &Point::queued}}))
             : draw(over_time(reports, "Waiting in engines", "requests",
                              {{"in engines", &Point::waiting}}));
  out += draw(over_time(reports, "Running", "requests", {{"running", &Point::running}}));
  out += draw(over_time(reports, "KV blocks in use", "%", {{"in use", &Point::kv_use, 100}}));
  out += draw(over_time(reports, "Prompt tokens found in caches", "%",
                        {{"cached", &Point::cached_ratio, 100}}));
  out += draw(over_time(reports, "Output", "tokens/s of completed requests",
                        {{"tokens", &Point::output_tokens_per_s}}));
  const bool scales = std::ranges::any_of(reports, [](const NamedReport& each) {
    const auto& timeline = each.report.timeline;
    return std::ranges::any_of(timeline, [&](const TimelinePoint& point) {
      return std::abs(point.workers - timeline.front().workers) > 1e-9;
    });
  });
  if (scales) {
    out += draw(over_time(reports, "Workers", "that take or finish requests",
                          {{"workers", &Point::workers}}));
  }
  out += "</div>\n<h2>Workers</h2><div class=\"plots\">\n";
  out += draw(per_worker(
      reports, "Busy", "% of the time", [](const WorkerReport& worker, const Report& report) {
        return report.duration_ms > 0 ? 100 * worker.busy_ms / report.duration_ms : 0;
      }));
  out +=
      draw(per_worker(reports, "Load", "requests", [](const WorkerReport& worker, const Report&) {
        return static_cast<double>(worker.requests);
      }));
  out += draw(per_worker(
      reports, "Prompt tokens from its cache", "%", [](const WorkerReport& worker, const Report&) {
        return worker.input_tokens == 0 ? 0
                                        : 100 * static_cast<double>(worker.cached_tokens) /
                                              static_cast<double>(worker.input_tokens);
      }));
  return out + "</div>\n";
}

std::string tile(std::string_view name, const std::string& value) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", value, name);
}

std::string tiles_of(const Report& report) {
  std::string out = "<div class=\"tiles\">\n";
  out += tile("requests completed", number(static_cast<double>(report.completed)));
  out += tile("requests/s", number(report.requests_per_s()));
  out += tile("TTFT mean, ms", number(report.ttft_ms.mean));
  out += tile("TTFT p99, ms", number(report.ttft_ms.p99));
  out += tile("time per token, ms", number(report.tpot_ms.mean));
  out += tile("latency mean, ms", number(report.e2e_ms.mean));
  out += tile("output tokens/s", number(report.tokens_per_s(report.output_tokens)));
  out += tile("prompt tokens cached", fmt::format("{:.1f} %", 100 * report.cached_ratio));
  return out + "</div>\n";
}

std::string table_of(const Report& report) {
  const std::pair<std::string_view, const Summary&> rows[] = {
      {"Time to first token, ms", report.ttft_ms},
      {"Time to second token, ms", report.ttst_ms},
      {"Request latency, ms", report.e2e_ms},
      {"Inter token latency, ms", report.tpot_ms},
      {"Token gap, ms", report.itl_ms},
      {"Queue wait, ms", report.queue_ms},
      {"Output tokens/s/user", report.request_rate}};
  std::string out =
      "<div class=\"wide\"><table><tr><th>Metric</th><th>mean</th><th>min</th><th>p50</th>"
      "<th>p90</th><th>p95</th><th>p99</th><th>max</th><th>std</th></tr>\n";
  for (const auto& [name, v] : rows) {
    out += fmt::format("<tr><td>{}</td>", name);
    for (const double value : {v.mean, v.min, v.p50, v.p90, v.p95, v.p99, v.max, v.std}) {
      out += fmt::format("<td>{:.2f}</td>", value);
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string table_of(std::span<const Difference> differences, Reports reports) {
  std::string out = fmt::format(
      "<div class=\"wide\"><table><tr><th></th><th>{}</th><th>{}</th><th>change</th><th>%</th>"
      "<th>95 % of the change</th></tr>\n",
      escape_html(reports[0].name), escape_html(reports[1].name));
  for (const Difference& one : differences) {
    out +=
        fmt::format("<tr><td>{}</td><td>{:.4g}</td><td>{:.4g}</td><td>{:+.4g}</td><td>{}</td>",
                    one.name, one.first, one.second, one.change(),
                    one.first == 0 ? "" : fmt::format("{:+.1f}", 100 * one.change() / one.first));
    out += one.has_bounds ? fmt::format("<td>{:+.4g} … {:+.4g}{}</td></tr>\n", one.low, one.high,
                                        one.significant() ? "" : ", may be chance")
                          : "<td></td></tr>\n";
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string render_html(Reports reports, std::span<const Difference> differences) {
  std::string out = report::page_begin("stator sim");
  const Report& first = reports.front().report;
  std::string title = reports.front().name;
  for (const NamedReport& other : reports.subspan(1)) {
    title += " against " + other.name;
  }
  out += "<h1>" + escape_html(title) + "</h1>\n";
  out += fmt::format(
      "<p class=\"sub\">{} worker{}{}, {} rules, router {}, {} request{} in {:.1f} simulated "
      "seconds</p>\n",
      first.workers, plural(first.workers),
      first.prefill_workers > 0 ? fmt::format(" and {} for prefill", first.prefill_workers) : "",
      escape_html(first.engine), escape_html(first.router), first.requests, plural(first.requests),
      first.duration_ms / 1000);
  for (const NamedReport& each : reports) {
    if (each.report.failed() > 0) {
      out += fmt::format("<p class=\"bad\">{} of {} requests failed{}; they are in no mean.</p>\n",
                         each.report.failed(), each.report.requests,
                         reports.size() > 1 ? " under " + escape_html(each.name) : "");
    }
  }
  if (differences.empty()) {
    out += tiles_of(first);
  } else {
    out += table_of(differences, reports);
  }
  out += plots_of(reports);
  for (const NamedReport& each : reports) {
    out += reports.size() > 1 ? "<h2>" + escape_html(each.name) + "</h2>\n" : "<h2>Figures</h2>\n";
    out += table_of(each.report);
  }
  return out + std::string(report::page_end());
}

namespace {

double parse_value(const std::string& text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? value : NAN;
}

/// A figure over the first parameter, a line per combination of the others.
Plot plot_of(const SweepSpec& spec, std::span<const SweepPoint> points, std::string_view name) {
  Plot plot{std::string(name), spec.axes.front().key, "", false, {}};
  const auto& values = spec.axes.front().values;
  const bool numeric = std::ranges::none_of(
      values, [](const std::string& value) { return std::isnan(parse_value(value)); });
  if (!numeric) {
    plot.x_names = values;
  }
  for (const SweepPoint& point : points) {
    const auto figure = std::ranges::find(point.figures, name, &Figure::name);
    if (figure == point.figures.end()) {
      continue;
    }
    std::string label;
    for (const auto& [key, value] : std::span(point.values).subspan(1)) {
      label += (label.empty() ? "" : ", ") + fmt::format("{} {}", key, value);
    }
    auto line = std::ranges::find(plot.lines, label, &PlotLine::name);
    if (line == plot.lines.end()) {
      line = plot.lines.insert(line, {label, {}});
    }
    const double position =
        numeric ? parse_value(point.values.front().second)
                : static_cast<double>(std::ranges::find(values, point.values.front().second) -
                                      values.begin());
    line->points.emplace_back(position, figure->value);
  }
  for (PlotLine& line : plot.lines) {
    std::ranges::sort(line.points);
  }
  return plot;
}

}  // namespace

std::string render_html(const SweepSpec& spec, std::span<const SweepPoint> points) {
  constexpr size_t kLinesMax = 12;
  std::string out = report::page_begin("stator sim");
  out += fmt::format("<h1>Sweep</h1>\n<p class=\"sub\">{} points</p>\n<div class=\"plots\">\n",
                     points.size());
  for (const std::string_view name :
       {"request_throughput_rps", "output_throughput_tok_s", "mean_ttft_ms", "p99_ttft_ms",
        "mean_tpot_ms", "prefix_cache_reused_ratio"}) {
    if (const Plot plot = plot_of(spec, points, name); plot.lines.size() <= kLinesMax) {
      out += draw(plot);
    }
  }
  out += "</div>\n<h2>Figures</h2><div class=\"wide\"><table>\n";
  bool has_header = false;
  for (const SweepPoint& point : points) {
    if (!has_header && !point.figures.empty()) {
      has_header = true;
      out += "<tr>";
      for (const auto& [key, value] : point.values) {
        out += "<th>" + escape_html(key) + "</th>";
      }
      for (const Figure& figure : point.figures) {
        out += "<th>" + figure.name + "</th>";
      }
      out += "</tr>\n";
    }
    out += "<tr>";
    for (const auto& [key, value] : point.values) {
      out += "<td>" + escape_html(value) + "</td>";
    }
    for (const Figure& figure : point.figures) {
      out += fmt::format("<td>{:.4g}</td>", figure.value);
    }
    out += (point.error.empty() ? "" : "<td>" + escape_html(point.error) + "</td>") + "</tr>\n";
  }
  return out + "</table></div>" + std::string(report::page_end());
}

}  // namespace stator::simulator
