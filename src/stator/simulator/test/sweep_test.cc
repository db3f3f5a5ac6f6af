// SPDX-License-Identifier: Apache-2.0
#include "stator/simulator/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

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

TEST(Sweep, CsvHasAllFiguresAndQuotes) {
  const std::vector<SweepPoint> points = {
      {.values = {{"router", "kv"}}, .figures = {}, .error = "a, b", .base = ""},
      {.values = {{"router", "random"}},
       .figures = {{"mean_ttft_ms", 2}},
       .error = "",
       .base = ""}};

  EXPECT_EQ(render_csv(points), "router,mean_ttft_ms,error\nkv,,\"a, b\"\nrandom,2,\n");
  EXPECT_THAT(render_table(points), HasSubstr("TTFT ms"));
}

}  // namespace
}  // namespace stator::simulator
