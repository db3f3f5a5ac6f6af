// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/lab/simulator/compare.h"
#include "stator/lab/simulator/report.h"
#include "stator/lab/simulator/sweep.h"

namespace stator::simulator {

struct NamedReport {
  std::string name;  ///< "kv", of the comparison; of a single run its title
  Report report;
};

/// Pages without scripts or anything to load, light or dark as the reader prefers.

/// Plots of latencies, the time line and the load of each worker, and a table of all figures.
/// Several reports share the plots.
std::string render_html(std::span<const NamedReport> reports,
                        std::span<const Difference> differences = {});
/// What the figures are at each point.
std::string render_html(const SweepSpec& spec, std::span<const SweepPoint> points);

}  // namespace stator::simulator
