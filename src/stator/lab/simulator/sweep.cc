// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/sweep.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "stator/lab/simulator/json_text.h"

namespace stator::simulator {
namespace {

// What fits on a terminal; CSV and HTML have all figures.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kColumns = {{
    {"completed_requests", "requests"},
    {"request_throughput_rps", "requests/s"},
    {"output_throughput_tok_s", "tokens/s"},
    {"mean_ttft_ms", "TTFT ms"},
    {"p99_ttft_ms", "TTFT p99"},
    {"mean_tpot_ms", "TPOT ms"},
    {"mean_e2e_latency_ms", "latency ms"},
    {"prefix_cache_reused_ratio", "cached"},
    {"failed_requests", "failed"},
}};

std::string quote_csv(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    out += c == '"' ? "\"\"" : std::string(1, c);
  }
  return out + '"';
}

std::string join_line(std::span<const std::string> cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    out += (i > 0 ? "," : "") + quote_csv(cells[i]);
  }
  return out + '\n';
}

}  // namespace

size_t SweepSpec::size() const {
  size_t size = 1;
  for (const Axis& axis : axes) {
    size *= axis.values.size();
  }
  return size;
}

std::vector<std::pair<std::string, std::string>> SweepSpec::point(size_t index) const {
  std::vector<std::pair<std::string, std::string>> values(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    values[i] = {axes[i].key, axes[i].values[index % axes[i].values.size()]};
    index /= axes[i].values.size();
  }
  return values;
}

Result<SweepSpec> parse_sweep(std::string_view text) {
  const auto refuse = [&](std::string_view what) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' {}: expected parameter=value,value, for example workers=2,4,8",
                             text, what));
  };
  SweepSpec spec;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (const size_t equals = item.find('='); equals != std::string_view::npos) {
      std::string_view key = item.substr(0, equals);
      key.remove_prefix(std::min(key.find_first_not_of('-'), key.size()));
      if (key.empty() ||
          std::ranges::find(spec.axes, key, &SweepSpec::Axis::key) != spec.axes.end()) {
        return refuse("names no parameter, or one twice");
      }
      spec.axes.push_back({.key = std::string(key), .values = {}});
      item.remove_prefix(equals + 1);
    }
    if (spec.axes.empty() || item.empty()) {
      return refuse("has a value that is missing or belongs to no parameter");
    }
    spec.axes.back().values.emplace_back(item);
    if (spec.size() > SweepSpec::kPointsMax) {
      return refuse(fmt::format("has more than {} points", SweepSpec::kPointsMax));
    }
  }
  if (spec.axes.empty()) {
    return refuse("has no parameter");
  }
  return spec;
}

double SweepPoint::figure(std::string_view name) const {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? 0 : found->value;
}

std::vector<size_t> best_points(std::span<const SweepPoint> points, std::span<const size_t> among,
                                std::string_view figure, size_t keep) {
  const bool more_is_better = figure.contains("throughput") || figure.contains("reused_ratio") ||
                              figure == "completed_requests";
  std::vector<size_t> best;
  std::ranges::copy_if(among, std::back_inserter(best),
                       [&](size_t i) { return !points[i].figures.empty(); });
  std::ranges::sort(best, {}, [&](size_t i) {
    const double value = points[i].figure(figure);
    return std::tuple(points[i].figure("failed_requests"), more_is_better ? -value : value, i);
  });
  best.resize(std::min(keep, best.size()));
  return best;
}

std::string render_json(const SweepPoint& point) {
  std::string out = "{\"values\": {";
  for (size_t i = 0; i < point.values.size(); ++i) {
    out += (i > 0 ? ", " : "") + quote_json(point.values[i].first) + ": " +
           quote_json(point.values[i].second);
  }
  out += "}, \"figures\": {";
  for (size_t i = 0; i < point.figures.size(); ++i) {
    out += fmt::format("{}\"{}\": {}", i > 0 ? ", " : "", point.figures[i].name,
                       point.figures[i].value);
  }
  out += '}';
  if (!point.error.empty()) {
    out += ", \"error\": " + quote_json(point.error);
  }
  return out + ", \"base\": " + quote_json(point.base) + "}\n";
}

std::string render_json(std::span<const SweepPoint> points) {
  std::string out = "{\"points\": [\n";
  for (const SweepPoint& point : points) {
    std::string line = render_json(point);
    line.pop_back();
    out += "  " + line + (&point == &points.back() ? "\n" : ",\n");
  }
  return out + "]}\n";
}

Result<SweepPoint> parse_sweep_point(std::string_view line) {
  const Error broken(Code::kCorrupt, "not a line of a sweep");
  simdjson::dom::parser parser;
  simdjson::dom::object row;
  simdjson::dom::object values;
  simdjson::dom::object figures;
  if (parser.parse(line.data(), line.size()).get(row) != simdjson::SUCCESS ||
      row["values"].get(values) != simdjson::SUCCESS ||
      row["figures"].get(figures) != simdjson::SUCCESS) {
    return broken.clone();
  }
  SweepPoint point;
  for (const auto& [key, value] : values) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      return broken.clone();
    }
    point.values.emplace_back(key, text);
  }
  for (const auto& [key, value] : figures) {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      return broken.clone();
    }
    point.figures.push_back({std::string(key), number});
  }
  std::string_view text;
  point.error = row["error"].get(text) == simdjson::SUCCESS ? text : std::string_view();
  point.base = row["base"].get(text) == simdjson::SUCCESS ? text : std::string_view();
  return point;
}

std::string render_csv(std::span<const SweepPoint> points) {
  std::string out;
  const auto measured =
      std::ranges::find_if(points, [](const SweepPoint& point) { return !point.figures.empty(); });
  const size_t figures = measured == points.end() ? 0 : measured->figures.size();
  for (const SweepPoint& point : points) {
    std::vector<std::string> cells;
    if (out.empty()) {
      for (const auto& [key, value] : point.values) {
        cells.push_back(key);
      }
      for (size_t i = 0; i < figures; ++i) {
        cells.push_back(measured->figures[i].name);
      }
      cells.emplace_back("error");
      out = join_line(cells);
      cells.clear();
    }
    for (const auto& [key, value] : point.values) {
      cells.push_back(value);
    }
    for (size_t i = 0; i < figures; ++i) {
      cells.push_back(i < point.figures.size() ? fmt::format("{}", point.figures[i].value) : "");
    }
    cells.push_back(point.error);
    out += join_line(cells);
  }
  return out;
}

std::string render_table(std::span<const SweepPoint> points) {
  std::string out;
  const auto cell = [&](std::string_view text, size_t width) {
    fmt::format_to(std::back_inserter(out), "{:>{}}  ", text, width);
  };
  std::vector<size_t> widths;
  for (const SweepPoint& point : points) {
    widths.resize(point.values.size());
    for (size_t i = 0; i < widths.size(); ++i) {
      widths[i] =
          std::max({widths[i], point.values[i].first.size(), point.values[i].second.size()});
    }
  }
  constexpr size_t kWidth = 11;
  for (const SweepPoint& point : points) {
    if (&point == points.data()) {
      for (size_t i = 0; i < widths.size(); ++i) {
        cell(point.values[i].first, widths[i]);
      }
      for (const auto& [name, header] : kColumns) {
        cell(header, kWidth);
      }
      out += '\n';
    }
    for (size_t i = 0; i < widths.size(); ++i) {
      cell(point.values[i].second, widths[i]);
    }
    for (const auto& [name, header] : kColumns) {
      const auto figure = std::ranges::find(point.figures, name, &Figure::name);
      if (figure != point.figures.end()) {
        const bool counts = name.ends_with("requests");
        cell(counts ? fmt::format("{:.0f}", figure->value) : fmt::format("{:.4g}", figure->value),
             kWidth);
      }
    }
    out += point.error + '\n';
  }
  return out;
}

}  // namespace stator::simulator
