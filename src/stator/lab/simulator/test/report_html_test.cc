// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/report_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

using testing::HasSubstr;
using testing::Not;

Report make_report() {
  Report report;
  report.router = "kv<";
  report.requests = 10;
  report.completed = 9;
  report.duration_ms = 1000;
  for (int i = 0; i <= 200; ++i) {
    report.ttft_curve.push_back(10 + i);
  }
  report.timeline = {{.begin_s = 0, .running = 1}, {.begin_s = 1, .running = 5}};
  report.per_worker = {{.requests = 4, .busy_ms = 500}, {.requests = 5, .busy_ms = 800}};
  return report;
}

TEST(ReportHtml, HasPlotsAndLoadsNothing) {
  const NamedReport named{"a&b.jsonl", make_report()};
  const std::string html = render_html({&named, 1});

  EXPECT_THAT(html, HasSubstr("a&amp;b.jsonl"));
  EXPECT_THAT(html, HasSubstr("router kv&lt;"));
  EXPECT_THAT(html, HasSubstr("1 of 10 requests failed"));
  for (const std::string title : {"Time to first token", "Waiting", "KV blocks in use",
                                  "Prompt tokens found in caches", "Busy", "Load"}) {
    EXPECT_THAT(html, HasSubstr("aria-label=\"" + title + "\""));
  }
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(ReportHtml, OfTwoRunsHasBothInEachPlot) {
  const std::vector<NamedReport> reports = {{"round_robin", make_report()}, {"kv", make_report()}};
  const std::vector<Difference> differences = {
      {.name = "mean_ttft_ms", .first = 4, .second = 3, .low = -2, .high = 1, .has_bounds = true}};

  const std::string html = render_html(reports, differences);

  EXPECT_THAT(html, HasSubstr("round_robin against kv"));
  EXPECT_THAT(html, HasSubstr("-2 … +1, may be chance"));
}

TEST(ReportHtml, OfASweepDrawsALinePerCombination) {
  const auto spec = parse_sweep("workers=2,4,router=kv,random");
  std::vector<SweepPoint> points;
  for (size_t i = 0; i < spec->size(); ++i) {
    points.push_back({.values = spec->point(i),
                      .figures = {{"mean_ttft_ms", 1.0 + static_cast<double>(i)}},
                      .error = "",
                      .base = ""});
  }

  const std::string html = render_html(*spec, points);

  EXPECT_THAT(html, HasSubstr("router random"));
  EXPECT_THAT(html, HasSubstr("<th>mean_ttft_ms</th>"));
}

}  // namespace
}  // namespace stator::simulator
