// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stator::report {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< in order of x
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool logarithmic_x = false;  ///< points with x ≤ 0 are left out
  std::vector<PlotLine> lines;
  std::vector<std::string> x_names{};  ///< of x = 0, 1, …: shown instead of numbers
};

/// The plot as one <svg> element: axes with round numbers, a legend, colours that follow the page's
/// light or dark scheme. Empty when there is nothing to draw.
std::string draw(const Plot& plot);

}  // namespace stator::report
