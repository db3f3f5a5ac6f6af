// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Sweep, HasEveryCombination) {
  const auto spec = parse_sweep("workers=2,4,--router=kv,round_robin,random");

  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  EXPECT_EQ(spec->size(), 6);
  EXPECT_THAT(spec->point(0), testing::ElementsAre(Pair("workers", "2"), Pair("router", "kv")));
  EXPECT_THAT(spec->point(5), testing::ElementsAre(Pair("workers", "4"), Pair("router", "random")));
}

TEST(Sweep, RefusesWhatIsNone) {
  for (const std::string text :
       {"", "workers", "=3", "workers=", "workers=1,,2", "workers=1,workers=2"}) {
    EXPECT_FALSE(parse_sweep(text).has_value()) << text;
  }
  std::string many = "a=0";
  for (int i = 1; i < 400; ++i) {
    many += "," + std::to_string(i);
  }
  const auto spec = parse_sweep(many + ",b" + many.substr(1));
  ASSERT_FALSE(spec.has_value());
  EXPECT_THAT(spec.error().message(), HasSubstr("more than 100000 points"));
}

TEST(Sweep, APointIsReadAsItWasWritten) {
  const SweepPoint point{.values = {{"router", "kv"}, {"x", "a\"b"}},
                         .figures = {{"mean_ttft_ms", 1.25}, {"failed_requests", 0}},
                         .error = "no, \"really\"",
                         .base = "abc"};

  const auto read = parse_sweep_point(render_json(point));

  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->values, point.values);
  EXPECT_EQ(read->figures[0].name, "mean_ttft_ms");
  EXPECT_EQ(read->figures[0].value, 1.25);
  EXPECT_EQ(read->error, point.error);
  EXPECT_EQ(read->base, "abc");
  EXPECT_FALSE(parse_sweep_point("{\"values\": {}, \"fig").has_value());
  EXPECT_FALSE(parse_sweep_point("{\"values\": {\"a\": 1}, \"figures\": {}}").has_value());
}

TEST(Sweep, TheBestHaveFewFailuresFirst) {
  const auto point = [](double failed, double ttft, double throughput) {
    return SweepPoint{.values = {},
                      .figures = {{"failed_requests", failed},
                                  {"mean_ttft_ms", ttft},
                                  {"request_throughput_rps", throughput}},
                      .error = "",
                      .base = ""};
  };
  const std::vector<SweepPoint> points = {
      point(0, 30, 7),
      point(5, 1, 9),
      point(0, 10, 8),
      {.values = {}, .figures = {}, .error = "impossible", .base = ""}};
  const std::vector<size_t> all = {0, 1, 2, 3};

  EXPECT_THAT(best_points(points, all, "mean_ttft_ms", 2), ElementsAre(2, 0));
  EXPECT_THAT(best_points(points, all, "request_throughput_rps", 9), ElementsAre(2, 0, 1));
  EXPECT_THAT(best_points(points, std::vector<size_t>{0, 3}, "mean_ttft_ms", 2), ElementsAre(0));
}

TEST(Sweep, CsvHasAllFiguresAndQuotes) {
  const std::vector<SweepPoint> points = {
      {.values = {{"router", "kv"}}, .figures = {}, .error = "a, b", .base = ""},
      {.values = {{"router", "random"}},
       .figures = {{"mean_ttft_ms", 2}, {"completed_requests", 20'000}},
       .error = "",
       .base = ""}};

  EXPECT_EQ(render_csv(points),
            "router,mean_ttft_ms,completed_requests,error\nkv,,,\"a, b\"\nrandom,2,20000,\n");
  EXPECT_THAT(render_table(points), HasSubstr("TTFT ms"));
  EXPECT_THAT(render_table(points), HasSubstr(" 20000 "));
}

}  // namespace
}  // namespace stator::simulator
