// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/result.h"

namespace stator::scaling {

/// One line of a metrics page.
struct Sample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;  ///< may be infinite or no number

  /// Empty where it has no such label.
  std::string_view label(std::string_view key) const;
};

/// A page of Prometheus' text format 0.0.4: what a `GET /metrics` answers. Pure.
class MetricsPage {
 public:
  /// kCorrupt names the line that is none of the format; kTooLarge beyond kSamplesMax lines.
  static Result<MetricsPage> parse(std::string_view text);

  explicit MetricsPage(std::vector<Sample> samples);

  using Filter = std::function<bool(const Sample&)>;
  /// Of all series with that name that pass; nothing if there is none.
  std::optional<double> sum(std::string_view name, const Filter& passes = {}) const;
  void each(std::string_view name, const std::function<void(const Sample&)>& visit) const;
  size_t size() const { return samples_.size(); }

 private:
  std::vector<Sample> samples_;  // by name
};

inline constexpr size_t kSamplesMax = 200'000;
inline constexpr size_t kPageBytesMax = 32UL << 20;

}  // namespace stator::scaling
