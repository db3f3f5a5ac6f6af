// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/lab/loadgen/report.h"
#include "stator/report/html_page.h"
#include "stator/report/svg_plot.h"
#include "stator/text/html.h"

namespace stator::loadgen {
namespace {

using report::draw;
using report::Plot;
using report::PlotLine;
using text::escape_html;

PlotLine percentiles(const Figures& figures, std::string_view tag, std::string_view name) {
  PlotLine line{std::string(name), {}};
  const auto found = figures.curves.find(tag);
  if (found != figures.curves.end()) {
    for (size_t i = 0; i < found->second.size(); ++i) {
      line.points.emplace_back(found->second[i], 100 * static_cast<double>(i) /
                                                     static_cast<double>(found->second.size() - 1));
    }
  }
  return line;
}

Plot cumulative(const Figures& figures, std::string title,
                std::initializer_list<std::pair<std::string_view, std::string_view>> tags) {
  Plot plot{std::move(title), "ms", "% at most", true, {}};
  for (const auto& [tag, name] : tags) {
    PlotLine line = percentiles(figures, tag, name);
    if (!line.points.empty()) {
      plot.lines.push_back(std::move(line));
    }
  }
  return plot;
}

Plot over_time(const Figures& figures, std::string title, std::string unit,
               double TimePiece::* field) {
  Plot plot{std::move(title), "seconds", unit, false, {{unit, {}}}};
  for (const TimePiece& piece : figures.timeline) {
    plot.lines.front().points.emplace_back(piece.at_s, piece.*field);
  }
  return plot;
}

std::string plots_of_run(const Figures& figures) {
  std::string out = "<div class=\"plots\">\n";
  out += draw(cumulative(figures, "Time to first token",
                         {{"time_to_first_token", "from sending"},
                          {"time_to_first_token_from_schedule", "from the schedule"}}));
  out += draw(cumulative(
      figures, "Between tokens",
      {{"inter_token_latency", "mean per request"}, {"inter_chunk_latency", "every gap"}}));
  out += draw(cumulative(figures, "Request latency",
                         {{"request_latency", "from sending"},
                          {"request_latency_from_schedule", "from the schedule"}}));
  out += draw(over_time(figures, "Throughput", "output tokens/s", &TimePiece::output_tokens_per_s));
  out += draw(over_time(figures, "Requests answered", "requests/s", &TimePiece::requests_per_s));
  out += draw(over_time(figures, "Requests in flight", "in flight", &TimePiece::in_flight));
  return out + "</div>\n";
}

std::string plots_of_sweep(const Report& report) {
  Plot rates{"Answered against offered", "requests/s offered", "requests/s answered", false, {}};
  Plot latencies{"Latency from the schedule", "requests/s offered", "ms", false, {}};
  PlotLine answered{"answered", {}};
  PlotLine first{"TTFT p99", {}};
  PlotLine whole{"latency p99", {}};
  std::vector<const RunResult*> steps;
  for (const RunResult& run : report.runs) {
    steps.push_back(&run);
  }
  std::ranges::sort(steps, {}, [](const RunResult* run) { return run->offered_per_s; });
  for (const RunResult* run : steps) {
    const double x = run->offered_per_s;
    answered.points.emplace_back(x, run->figures.value("request_throughput"));
    if (const Metric* metric = run->figures.find("time_to_first_token_from_schedule")) {
      first.points.emplace_back(x, metric->values.p99);
    }
    if (const Metric* metric = run->figures.find("request_latency_from_schedule")) {
      whole.points.emplace_back(x, metric->values.p99);
    }
  }
  rates.lines = {std::move(answered)};
  latencies.lines = {std::move(first), std::move(whole)};
  return "<div class=\"plots\">\n" + draw(rates) + draw(latencies) + "</div>\n";
}

std::string table_of(const Figures& figures) {
  std::string out =
      "<div class=\"wide\"><table><tr><th>Metric</th><th>avg</th><th>min</th><th>p50</th>"
      "<th>p90</th><th>p95</th><th>p99</th><th>max</th><th>std</th></tr>\n";
  for (const Metric& metric : figures.metrics) {
    const Summary& v = metric.values;
    out += fmt::format("<tr><td>{} ({})</td><td>{:.3f}</td>", metric.header, metric.unit, v.avg);
    if (!metric.single) {
      for (const double value : {v.min, v.p50, v.p90, v.p95, v.p99, v.max, v.std}) {
        out += fmt::format("<td>{:.3f}</td>", value);
      }
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string table_of_runs(const Report& report) {
  std::string out =
      "<h2>Repeated runs</h2><div class=\"wide\"><table><tr><th>Metric</th><th>mean</th>"
      "<th>std</th><th>95 % from</th><th>to</th></tr>\n";
  for (const RepeatedMetric& metric : repeat_metrics(report.runs)) {
    const Confidence& c = metric.confidence;
    out += fmt::format(
        "<tr><td>{} ({})</td><td>{:.3f}</td><td>{:.3f}</td><td>{:.3f}</td>"
        "<td>{:.3f}</td></tr>\n",
        metric.tag, metric.unit, c.mean, c.std, c.low, c.high);
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string to_html(const Report& report) {
  const RunResult& run = main_run(report);
  std::string out = report::page_begin("stator bench");
  out += "<h1>stator bench</h1>\n";
  for (const std::string& reason : reasons_not_to_publish(report)) {
    out += "<p class=\"bad\">Not valid, the generator was the bottleneck: " + escape_html(reason) +
           "</p>\n";
  }
  if (report.is_sweep) {
    out += fmt::format(
        "<p>Highest sustained rate: <b>{:.3g} requests/s</b>. The figures below are "
        "those of that step.</p>\n",
        report.saturation_per_s);
    out += plots_of_sweep(report);
  }
  for (const std::string& note : notes_of(report)) {
    out += "<p>" + escape_html(note) + "</p>\n";
  }
  out += plots_of_run(run.figures);
  out += "<h2>Figures</h2>\n" + table_of(run.figures);
  if (!report.is_sweep && report.runs.size() > 1) {
    out += table_of_runs(report);
  }
  if (!run.figures.errors.empty()) {
    out += "<h2>Failures</h2><ul>\n";
    for (const auto& [text, count] : run.figures.errors) {
      out += fmt::format("<li>{} × {}</li>\n", count, escape_html(text));
    }
    out += "</ul>\n";
  }
  out += fmt::format(
      "<h2>Generator</h2><p>{} thread(s), {:.0f} % busy, {:.1f} µs of CPU per "
      "request, sent {:.3f} ms late at p99. Warm-up left out: {:.2f} s, {} "
      "requests.</p>\n",
      run.client.threads, 100 * run.client.busy_share, run.client.cpu_us_per_request,
      run.client.send_delay_p99_ms, run.figures.warm_up_s, run.figures.warm_up_requests);
  out += "<h2>Settings</h2><div class=\"wide\"><table>\n";
  for (const auto& [name, value] : report.settings) {
    out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_html(name), escape_html(value));
  }
  return out + "</table></div>\n" + std::string(report::page_end());
}

}  // namespace stator::loadgen
