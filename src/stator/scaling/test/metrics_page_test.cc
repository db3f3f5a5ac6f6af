// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/metrics_page.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stator/core/metrics.h"

namespace stator::scaling {
namespace {

TEST(MetricsPage, ReadsWhatOurOwnRegistryWrites) {
  Metrics metrics;
  metrics.counter("requests_total", "help with \"quotes\"", {{"model", "a\"b\\c\nd"}}).add(3);
  metrics.counter("requests_total", "help", {{"model", "e"}}).add(4);
  metrics.gauge("load", "help").set(0.25);
  const double bounds[] = {0.1, 1};
  metrics.histogram("wait_seconds", "help", bounds).observe(0.5);

  const auto page = MetricsPage::parse(metrics.render());

  ASSERT_TRUE(page) << page.error().message();
  EXPECT_EQ(page->sum("requests_total"), 7);
  EXPECT_EQ(page->sum("requests_total",
                      [](const Sample& each) { return each.label("model") == "a\"b\\c\nd"; }),
            3);
  EXPECT_EQ(page->sum("load"), 0.25);
  EXPECT_EQ(page->sum("wait_seconds_bucket",
                      [](const Sample& each) { return each.label("le") == "+Inf"; }),
            1);
  EXPECT_FALSE(page->sum("nothing"));
}

TEST(MetricsPage, KnowsEverySpellingOfNumbers) {
  const auto page =
      MetricsPage::parse("a 1e5 1700000000\nb NaN\nc +Inf\nd{x=\"y\",} -2.5\r\n\ne 7");

  ASSERT_TRUE(page);
  EXPECT_EQ(page->sum("a"), 1e5);
  EXPECT_TRUE(std::isnan(*page->sum("b")));
  EXPECT_TRUE(std::isinf(*page->sum("c")));
  EXPECT_EQ(page->sum("d"), -2.5);
  EXPECT_EQ(page->sum("e"), 7);
}

TEST(MetricsPage, NamesTheLineThatIsNone) {
  for (const char* text : {"a 1\nb{x=y} 2\n", "a 1\n<html>\n", "a 1\nb\n", "a 1\nb{x=\"y} 2\n",
                           "a 1\nb 1.2.3\n", "a 1\n{x=\"y\"} 1\n"}) {
    const auto page = MetricsPage::parse(text);
    ASSERT_FALSE(page) << text;
    EXPECT_EQ(page.error().code(), Code::kCorrupt);
    EXPECT_NE(page.error().message().find("line 2"), std::string::npos) << page.error().message();
  }
}

TEST(MetricsPage, RefusesMoreLinesThanItsBound) {
  std::string text;
  for (size_t i = 0; i <= kSamplesMax; ++i) {
    text += "a 1\n";
  }
  const auto page = MetricsPage::parse(text);

  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace stator::scaling
