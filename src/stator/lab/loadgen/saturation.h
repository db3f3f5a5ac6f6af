// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace stator::loadgen {

/// Finds the highest rate that a server sustains: doubles until it does not, halves until it does,
/// then bisects until both neighbours are within `precision` of each other. Knows no server: it
/// proposes rates and is told what became of them.
class SaturationSearch {
 public:
  struct Options {
    double first_rate = 1;
    double rate_max = 1e6;
    double precision = 0.05;  ///< relative
    uint32_t steps_max = 20;
  };
  explicit SaturationSearch(const Options& options) : options_(options) {}

  /// The rate to try next; nothing when the search is over.
  std::optional<double> next_rate() const;
  void add(double rate, bool sustained);

  /// Highest rate sustained so far, 0 if none was.
  double sustained() const { return sustained_; }
  /// Lowest rate not sustained, if any.
  std::optional<double> unsustained() const { return unsustained_; }

 private:
  Options options_;
  uint32_t steps_ = 0;
  double sustained_ = 0;
  std::optional<double> unsustained_;
};

}  // namespace stator::loadgen
