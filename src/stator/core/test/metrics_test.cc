// SPDX-License-Identifier: Apache-2.0
#include "stator/core/metrics.h"

#include "stator/core/histogram_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace stator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(GeometricBounds, GrowByTheFactor) {
  EXPECT_THAT((geometric_bounds<4>(0.25, 2)), testing::ElementsAre(0.25, 0.5, 1, 2));
}

TEST(Metrics, SumsTheCountsOfAllThreads) {
  Metrics metrics;
  const Counter counter = metrics.counter("x_total", "things");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([counter] {
      for (int n = 0; n < 10'000; ++n) {
        counter.add();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter.value(), 80'000U);
}

TEST(Metrics, RendersThePrometheusTextFormat) {
  Metrics metrics;
  metrics.counter("requests_total", "requests", {{"model", "a\"b\\c\nd"}}).add(3);
  metrics.gauge("active", "now").set(2.5);
  constexpr std::array kBounds = {0.1, 1.0};
  const Histogram histogram = metrics.histogram("seconds", "time", kBounds, {{"stage", "route"}});
  histogram.observe(0.05);
  histogram.observe(0.1);
  histogram.observe(5, 2);

  const std::string text = metrics.render();

  EXPECT_THAT(text, HasSubstr("# HELP requests_total requests\n# TYPE requests_total counter\n"));
  EXPECT_THAT(text, HasSubstr("requests_total{model=\"a\\\"b\\\\c\\nd\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("active 2.5\n"));
  EXPECT_THAT(text, HasSubstr("seconds_bucket{stage=\"route\",le=\"0.1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("seconds_bucket{stage=\"route\",le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("seconds_bucket{stage=\"route\",le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("seconds_sum{stage=\"route\"} 10.15\n"));
  EXPECT_THAT(text, HasSubstr("seconds_count{stage=\"route\"} 4\n"));
}

TEST(Metrics, TheSameNameAndLabelsAreTheSameSeries) {
  Metrics metrics;
  metrics.counter("x_total", "things", {{"k", "v"}}).add();
  metrics.counter("x_total", "things", {{"k", "v"}}).add();
  EXPECT_EQ(metrics.counter("x_total", "things", {{"k", "v"}}).value(), 2U);
  EXPECT_EQ(metrics.counter("x_total", "things", {{"k", "w"}}).value(), 0U);
}

TEST(Metrics, ACallbackGaugeIsReadAtScrapeTime) {
  Metrics metrics;
  double value = 1;
  metrics.gauge_callback("depth", "queue", {}, [&value] { return value; });
  value = 7;
  EXPECT_THAT(metrics.render(), HasSubstr("depth 7\n"));
}

TEST(Metrics, ACallbackCounterIsReadAtScrapeTime) {
  Metrics metrics;
  double value = 1;
  metrics.counter_callback("seconds_total", "time", {{"k", "v"}}, [&value] { return value; });
  value = 2.5;
  EXPECT_THAT(metrics.render(), HasSubstr("# TYPE seconds_total counter\n"
                                          "seconds_total{k=\"v\"} 2.5\n"));
}

TEST(Metrics, ARemovedSeriesIsNotShownAndItsPlaceIsReused) {
  Metrics metrics;
  constexpr std::array kBounds = {1.0};
  for (int i = 0; i < 100'000; ++i) {  // more than there are slots
    const MetricLabels labels = {{"worker", std::to_string(i)}};
    const Counter counter = metrics.counter("x_total", "things", labels);
    const Histogram histogram = metrics.histogram("seconds", "time", kBounds, labels);
    metrics.gauge_callback("depth", "queue", labels, [] { return 5.0; });
    ASSERT_EQ(counter.value(), 0U);
    ASSERT_EQ(histogram.count(), 0U);
    counter.add();
    histogram.observe(0.5);
    for (const char* name : {"x_total", "seconds", "depth"}) {
      metrics.remove(name, labels);
    }
  }
  EXPECT_THAT(metrics.render(), Not(HasSubstr("worker=")));
}

TEST(Metrics, RemovingASeriesLeavesTheOthersAlone) {
  Metrics metrics;
  const Gauge kept = metrics.gauge("depth", "queue", {{"k", "a"}});
  kept.set(3);
  metrics.gauge("depth", "queue", {{"k", "b"}}).set(4);
  metrics.remove("depth", {{"k", "b"}});
  metrics.remove("depth", {{"k", "c"}});
  metrics.remove("unknown", {});
  EXPECT_THAT(metrics.render(), HasSubstr("depth{k=\"a\"} 3\n"));
  EXPECT_THAT(metrics.render(), Not(HasSubstr("k=\"b\"")));
  EXPECT_EQ(metrics.gauge("depth", "queue", {{"k", "b"}}).value(), 0);
}

TEST(Metrics, ADefaultHandleCountsIntoNothing) {
  Counter().add();
  Gauge().set(1);
  Histogram().observe(1);
  EXPECT_EQ(Counter().value(), 0U);
}

TEST(Metrics, GivesFamiliesLabelsThatAllTheirSeriesHave) {
  Metrics metrics;
  metrics.label_all("a_", {{"fleet", "f"}});
  const MetricLabels labels = {{"x", "1"}};
  metrics.counter("a_total", "help", labels).add();
  metrics.counter("b_total", "help").add();

  EXPECT_THAT(metrics.render(), HasSubstr("a_total{x=\"1\",fleet=\"f\"} 1\n"));
  EXPECT_THAT(metrics.render(), HasSubstr("b_total 1\n"));
  metrics.remove("a_total", labels);
  EXPECT_THAT(metrics.render(), Not(HasSubstr("a_total{")));
}

TEST(Metrics, SpeaksOpenMetricsToThoseWhoAsk) {
  EXPECT_EQ(Metrics::format_for("text/plain"), Metrics::Format::kText);
  EXPECT_EQ(Metrics::format_for("application/openmetrics-text;version=1.0.0,*/*;q=0.1"),
            Metrics::Format::kOpenMetrics);
  Metrics metrics;
  metrics.counter("x_total", "help").add();
  metrics.counter("y", "help").add();
  constexpr std::array kBounds = {1.0, 2.0};
  const Histogram histogram = metrics.histogram("z_seconds", "help", kBounds);
  histogram.observe(1.5);
  histogram.exemplify(1.5, "0af7651916cd43dd8448eb211c80319c", WallTime(std::chrono::seconds(7)));

  const std::string text = metrics.render(Metrics::Format::kOpenMetrics);

  EXPECT_THAT(text, HasSubstr("# TYPE x counter\nx_total 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE y unknown\ny 1\n"));
  EXPECT_THAT(text, HasSubstr("z_seconds_bucket{le=\"2\"} 1 # "
                              "{trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 1.5 7.000\n"));
  EXPECT_TRUE(text.ends_with("# EOF\n"));
  EXPECT_THAT(metrics.render(), Not(HasSubstr("trace_id")));
}

TEST(Metrics, HasRoomForAFleet) {
  Metrics metrics;
  Counter last;
  for (int i = 0; i < 50'000; ++i) {
    last = metrics.counter("many_total", "help", {{"i", std::to_string(i)}});
  }
  last.add(3);
  EXPECT_EQ(last.value(), 3U);
}

}  // namespace
}  // namespace stator
