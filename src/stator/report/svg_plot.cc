// SPDX-License-Identifier: Apache-2.0
#include "stator/report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "stator/report/html_page.h"
#include "stator/text/html.h"

namespace stator::report {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 300;
constexpr double kLeft = 62;
constexpr double kRight = 12;
constexpr double kTop = 30;
constexpr double kBottom = 46;
constexpr double kTickDistance = 32;
constexpr double kLegendRow = 16;
constexpr double kSwatch = 16;
constexpr double kLetter = 6.6;  // width of a letter of the legend, about
constexpr std::array<std::string_view, 6> kColours = {"#2b7bba", "#d9541e", "#3a9a4b",
                                                      "#8a56b0", "#b58a00", "#c2437a"};

std::string_view colour_of(size_t line) {
  return kColours[line % kColours.size()];
}

struct Axis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  double share(double value) const {
    return logarithmic ? std::log(value / low) / std::log(high / low)
                       : (value - low) / (high - low);
  }
};

/// Powers of ten, with 2 and 5 times them where those are few; none where the axis is narrower.
std::vector<double> logarithmic_ticks(const Axis& axis) {
  std::vector<double> out;
  const bool few = axis.high / axis.low < 1000;
  for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high;
       power *= 10) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double tick = power * digit;
      if (tick >= axis.low * 0.999 && tick <= axis.high * 1.001 && (few || digit == 1.0)) {
        out.push_back(tick);
      }
    }
  }
  return out;
}

/// Round numbers, about six of them: steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(const Axis& axis) {
  constexpr size_t kEnough = 3;
  std::vector<double> out = axis.logarithmic ? logarithmic_ticks(axis) : std::vector<double>();
  if (out.size() >= kEnough) {
    return out;
  }
  out.clear();
  const double rough = (axis.high - axis.low) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
  for (double tick = std::ceil(axis.low / step) * step; tick <= axis.high + step / 1000;
       tick += step) {
    out.push_back(tick);
  }
  return out;
}

std::string tick_text(double value) {
  if (std::abs(value) >= 1e6) {
    return fmt::format("{:g}M", value / 1e6);
  }
  return std::abs(value) >= 1e4 ? fmt::format("{:g}k", value / 1e3) : fmt::format("{:.4g}", value);
}

Axis fit(const Plot& plot, bool of_x) {
  if (of_x && !plot.x_names.empty()) {  // names have room at both ends
    return {.low = -0.5, .high = static_cast<double>(plot.x_names.size()) - 0.5};
  }
  Axis axis{.low = INFINITY, .high = -INFINITY, .logarithmic = of_x && plot.logarithmic_x};
  for (const PlotLine& line : plot.lines) {
    for (const auto& [x, y] : line.points) {
      const double value = of_x ? x : y;
      if (!axis.logarithmic || value > 0) {
        axis.low = std::min(axis.low, value);
        axis.high = std::max(axis.high, value);
      }
    }
  }
  if (!(axis.low <= axis.high)) {
    return axis;  // no points
  }
  if (axis.logarithmic) {
    axis.high = std::max(axis.high, axis.low * 1.1);
    return axis;
  }
  axis.low = std::min(axis.low, 0.0);
  axis.high =
      axis.high > axis.low ? axis.high + (of_x ? 0 : 0.05 * (axis.high - axis.low)) : axis.low + 1;
  return axis;
}

double place_x(const Axis& axis, double value) {
  return kLeft + axis.share(value) * (kWidth - kLeft - kRight);
}
double place_y(const Axis& axis, double value) {
  return kHeight - kBottom - axis.share(value) * (kHeight - kTop - kBottom);
}

/// Where x is labelled, and with what.
std::vector<std::pair<double, std::string>> x_ticks(const Plot& plot, const Axis& axis) {
  std::vector<std::pair<double, std::string>> out;
  for (size_t i = 0; i < plot.x_names.size(); ++i) {
    out.emplace_back(static_cast<double>(i), plot.x_names[i]);
  }
  for (const double tick : plot.x_names.empty() ? ticks(axis) : std::vector<double>()) {
    out.emplace_back(tick, tick_text(tick));
  }
  return out;
}

void draw_axes(const Plot& plot, const Axis& x, const Axis& y, std::string& out) {
  const double bottom = kHeight - kBottom;
  double last = -INFINITY;
  for (const auto& [tick, text] : x_ticks(plot, x)) {
    const double room = std::max(kTickDistance, kLetter * static_cast<double>(text.size()));
    if (place_x(x, tick) - last < room) {
      continue;  // round numbers crowd at the end of a short logarithmic axis
    }
    last = place_x(x, tick);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        place_x(x, tick), kTop, bottom, bottom + 16, text::escape_html(text));
  }
  for (const double tick : ticks(y)) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kWidth - kRight, place_y(y, tick), kLeft - 6, place_y(y, tick) + 4, tick_text(tick));
  }
  out += fmt::format("<text class=\"title\" x=\"{}\" y=\"16\">{}</text>\n", kLeft,
                     text::escape_html(plot.title));
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kWidth) / 2, kHeight - 8, text::escape_html(plot.x_label));
  out += fmt::format(
      "<text transform=\"rotate(-90)\" x=\"{}\" y=\"14\" text-anchor=\"middle\">{}</text>\n",
      -(kHeight - kBottom + kTop) / 2, text::escape_html(plot.y_label));
}

void draw_line(const PlotLine& line, size_t index, const std::pair<Axis, Axis>& axes,
               std::string& out) {
  const std::string_view colour = colour_of(index);
  out +=
      fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" points=\"", colour);
  for (const auto& [x, y] : line.points) {
    if (!axes.first.logarithmic || x > 0) {
      out += fmt::format("{:.1f},{:.1f} ", place_x(axes.first, x), place_y(axes.second, y));
    }
  }
  out += "\"/>\n";
}

/// Below the axes, where no line can be: names one after the other, in as many rows as they need.
/// Returns the height of the rows.
double draw_legend(const Plot& plot, std::string& out) {
  double x = kLeft;
  double y = kHeight + kLegendRow / 2;
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    const std::string& name = plot.lines[i].name;
    const double width = kSwatch + 5 + kLetter * static_cast<double>(name.size());
    if (x > kLeft && x + width > kWidth - kRight) {
      x = kLeft;
      y += kLegendRow;
    }
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" "
        "stroke-width=\"3\"/><text x=\"{4:.1f}\" y=\"{5}\">{6}</text>\n",
        x, x + kSwatch, y, colour_of(i), x + kSwatch + 5, y + 4, text::escape_html(name));
    x += width + 16;
  }
  return y + kLegendRow / 2 - kHeight;
}

}  // namespace

std::string draw(const Plot& plot) {
  const Axis x = fit(plot, true);
  const Axis y = fit(plot, false);
  if (!std::isfinite(x.low) || !std::isfinite(y.low)) {
    return {};
  }
  std::string body;
  const double legend = draw_legend(plot, body);
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}",
                                kWidth, kHeight + legend, text::escape_html(plot.title), body);
  draw_axes(plot, x, y, out);
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    draw_line(plot.lines[i], i, {x, y}, out);
  }
  return out + "</svg>\n";
}

}  // namespace stator::report
