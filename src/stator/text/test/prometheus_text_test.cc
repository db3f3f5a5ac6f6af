// SPDX-License-Identifier: Apache-2.0
#include "stator/text/prometheus_text.h"

#include <gtest/gtest.h>

namespace stator::text {
namespace {

TEST(PrometheusText, SumsSeriesAndPrefersTheNewerName) {
  constexpr std::string_view kText =
      "# HELP new x\nold{a=\"1\"} 7\nnew{rank=\"0\"} 2.0\nnew{rank=\"1\"} 3\nnewer_total 9\n"
      "info{size=\"32\",block_size=\"16\",odd=\"a b\"} 1.0\n";
  EXPECT_EQ(find_metric(kText, {"new", "old"}), 5);
  EXPECT_EQ(find_metric(kText, {"newest", "old"}), 7);
  EXPECT_EQ(find_metric(kText, {"newer_total"}), 9);
  EXPECT_EQ(find_metric(kText, {"none"}), std::nullopt);
  EXPECT_EQ(find_label(kText, "info", "block_size"), "16");
  EXPECT_EQ(find_label(kText, "info", "size"), "32");
  EXPECT_EQ(find_label(kText, "info", "absent"), "");
}

TEST(PrometheusText, AveragesSeriesAndFindsTheNewest) {
  constexpr std::string_view kText =
      "used{engine=\"0\"} 0.5\nused{engine=\"1\"} 0.1\n"
      "adapters{running=\"a,b\",max=\"4\"} 7\nadapters{running=\"\",max=\"4\"} 3\nadapters{} NaN\n";
  EXPECT_DOUBLE_EQ(find_mean(kText, {"newer_used", "used"}).value(), 0.3);
  EXPECT_EQ(find_mean(kText, {"none"}), std::nullopt);
  EXPECT_EQ(find_label(find_highest(kText, "adapters"), "adapters", "running"), "a,b");
  EXPECT_EQ(find_highest(kText, "none"), "");
}

}  // namespace
}  // namespace stator::text
