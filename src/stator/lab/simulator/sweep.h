// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/result.h"
#include "stator/lab/simulator/report.h"

namespace stator::simulator {

/// Parameters and the values each is to take. Every combination is a point; the last parameter
/// changes fastest.
struct SweepSpec {
  struct Axis {
    std::string key;  ///< a flag without its dashes
    std::vector<std::string> values;
  };
  static constexpr size_t kPointsMax = 100'000;

  std::vector<Axis> axes;

  size_t size() const;
  /// (key, value) of each axis.
  std::vector<std::pair<std::string, std::string>> point(size_t index) const;
};

/// "workers=2,4,8,router-mode=kv,round_robin": a new parameter begins at each item with a `=`.
/// kInvalidArgument for no parameter, one without values or twice, and for too many points.
Result<SweepSpec> parse_sweep(std::string_view text);

struct SweepPoint {
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<Figure> figures;
  std::string error;  ///< if it could not be simulated; no figures then
  std::string base;   ///< identity of everything that is not swept

  /// 0 for one that is not there.
  double figure(std::string_view name) const;
};

/// One line of JSON, and back: what a sweep that is resumed need not do again.
std::string render_json(const SweepPoint& point);
Result<SweepPoint> parse_sweep_point(std::string_view line);
/// All of them: {"points": […]}, each as above.
std::string render_json(std::span<const SweepPoint> points);

/// The `keep` best of the points at `among`, best first: those with fewer failures, and among
/// equals by `figure`. Less is better unless it is a throughput or a ratio of cached tokens; points
/// without figures are never kept.
std::vector<size_t> best_points(std::span<const SweepPoint> points, std::span<const size_t> among,
                                std::string_view figure, size_t keep);

std::string render_csv(std::span<const SweepPoint> points);
std::string render_table(std::span<const SweepPoint> points);

}  // namespace stator::simulator
