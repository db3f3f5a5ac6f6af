// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stator::fake_engine {

/// A distribution as prometheus_client keeps it.
class PromHistogram {
 public:
  /// `bounds` ascending and static; +Inf is implied.
  explicit PromHistogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}
  void observe(double value);

 private:
  friend class PromText;
  std::span<const double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

/// Prometheus text as Python's prometheus_client prints it: HELP and TYPE lines, floats with a
/// fraction, labels in alphabetical order (the caller's business).
class PromText {
 public:
  /// `labels` is the inside of the braces of every sample: `engine="0",model_name="m"`.
  explicit PromText(std::string labels) : labels_(std::move(labels)) {}

  PromText& family(std::string_view name, std::string_view type, std::string_view help);
  /// A sample of the current family; `more` labels go behind the common ones.
  PromText& sample(double value, std::string_view more = {});
  PromText& sample_as(std::string_view name, double value, std::string_view all_labels);
  PromText& gauge(std::string_view name, std::string_view help, double value);
  PromText& counter(std::string_view name, std::string_view help, double value);
  PromText& histogram(std::string_view name, std::string_view help, const PromHistogram& values);
  std::string take() { return std::move(out_); }

 private:
  std::string labels_;
  std::string name_;
  std::string out_;
};

}  // namespace stator::fake_engine
