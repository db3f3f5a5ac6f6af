// SPDX-License-Identifier: Apache-2.0
#include "stator/report/svg_plot.h"

#include <gmock/gmock.h>

namespace stator::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SvgPlot, LeavesOutWhatALogarithmCannotShow) {
  const std::string svg = draw({"t", "x", "y", true, {{"l", {{0, 1}, {1, 2}, {100, 3}}}}});

  EXPECT_THAT(svg, HasSubstr("<polyline"));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(draw({"t", "x", "y", false, {}}), "");
  EXPECT_EQ(draw({"t", "x", "y", true, {{"l", {{0, 1}}}}}), "");
}

TEST(SvgPlot, HasRoundNumbersOnANarrowLogarithmicAxis) {
  const std::string svg = draw({"t", "x", "y", true, {{"l", {{355, 1}, {461, 2}}}}});

  EXPECT_THAT(svg, HasSubstr(">360</text>"));
  EXPECT_THAT(svg, HasSubstr(">460</text>"));
}

}  // namespace
}  // namespace stator::report
