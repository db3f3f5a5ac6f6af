// SPDX-License-Identifier: Apache-2.0
#include "stator/app/histogram_buckets.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace stator::app {
namespace {

using Bounds = std::vector<double>;

TEST(HistogramBuckets, GrowAsDynamos) {
  EXPECT_EQ(make_bounds(1, 512, 10), (Bounds{0, 2, 4, 8, 16, 32, 64, 130, 260, 510}));
  EXPECT_EQ(make_bounds(0.001, 2, 13),
            (Bounds{0, .0019, .0035, .0067, .013, .024, .045, .084, .16, .3, .56, 1.1, 2}));
  EXPECT_EQ(make_bounds(50, 32000, 10),
            (Bounds{0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000}));
}

TEST(HistogramBuckets, HoldForSeriesThatComeLater) {
  Metrics metrics;
  ASSERT_TRUE(set_histogram_buckets("ttft=0.1:10:3,request_duration=1:4:2", "p", metrics));
  const double usual[] = {5, 6, 7, 8};
  const auto made = metrics.histogram("p_time_to_first_token_seconds", "", usual, {{"model", "m"}});
  metrics.histogram("p_time_to_first_token_seconds", "", usual, {{"model", "n"}}).observe(2);
  made.observe(0.5);
  const std::string text = metrics.render();
  for (const char* line : {R"(p_time_to_first_token_seconds_bucket{model="m",le="1"} 1)",
                           R"(p_time_to_first_token_seconds_bucket{model="n",le="1"} 0)",
                           R"(p_time_to_first_token_seconds_bucket{model="n",le="10"} 1)"}) {
    EXPECT_TRUE(text.contains(line)) << text;
  }
  EXPECT_FALSE(text.contains("le=\"5\"")) << text;
  EXPECT_FALSE(text.contains("_bucket{le=")) << "the series that chose them is not shown";
}

TEST(HistogramBuckets, ComeFromDynamosVariables) {
  ASSERT_EQ(setenv("DYN_METRICS_ITL_MAX", "20", 1), 0);
  ASSERT_EQ(setenv("DYN_METRICS_ITL_COUNT", "3", 1), 0);
  Metrics metrics;
  ASSERT_TRUE(set_histogram_buckets("", "p", metrics));
  unsetenv("DYN_METRICS_ITL_MAX");
  unsetenv("DYN_METRICS_ITL_COUNT");
  const double usual[] = {5};
  metrics.histogram("p_inter_token_latency_seconds", "", usual, {{"model", "m"}});
  EXPECT_TRUE(metrics.render().contains(R"(le="20")"));
}

TEST(HistogramBuckets, SayWhatIsWrong) {
  Metrics metrics;
  for (const char* text : {"nothing=1:2:3", "ttft=1:2", "ttft=2:1:3", "ttft=1:2:1", "ttft=a:2:3",
                           "ttft=1:2:2.5", "ttft", "=1:2:3"}) {
    const Status status = set_histogram_buckets(text, "p", metrics);
    ASSERT_FALSE(status) << text;
    EXPECT_TRUE(status.error().message().contains("frontend.histograms")) << text;
  }
}

}  // namespace
}  // namespace stator::app
