// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/prom_text.h"

#include <fmt/format.h>

#include <cmath>

namespace stator::fake_engine {
namespace {

/// As Python prints floats: whole numbers keep ".0".
std::string spell(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e15) {
    return fmt::format("{:.1f}", value);
  }
  return fmt::format("{}", value);
}

}  // namespace

void PromHistogram::observe(double value) {
  size_t at = 0;
  while (at < bounds_.size() && value > bounds_[at]) {
    ++at;
  }
  ++counts_[at];
  sum_ += value;
}

PromText& PromText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  return *this;
}

PromText& PromText::sample_as(std::string_view name, double value, std::string_view all_labels) {
  out_ += fmt::format("{}{{{}}} {}\n", name, all_labels, spell(value));
  return *this;
}

PromText& PromText::sample(double value, std::string_view more) {
  return sample_as(name_, value, more.empty() ? labels_ : fmt::format("{},{}", labels_, more));
}

PromText& PromText::gauge(std::string_view name, std::string_view help, double value) {
  return family(name, "gauge", help).sample(value);
}

PromText& PromText::counter(std::string_view name, std::string_view help, double value) {
  return family(name, "counter", help).sample(value);
}

PromText& PromText::histogram(std::string_view name, std::string_view help,
                              const PromHistogram& values) {
  family(name, "histogram", help);
  uint64_t total = 0;
  for (size_t i = 0; i < values.counts_.size(); ++i) {
    total += values.counts_[i];
    const std::string bound = i < values.bounds_.size() ? spell(values.bounds_[i]) : "+Inf";
    sample_as(name_ + "_bucket", static_cast<double>(total),
              fmt::format("{},le=\"{}\"", labels_, bound));
  }
  sample_as(name_ + "_count", static_cast<double>(total), labels_);
  return sample_as(name_ + "_sum", values.sum_, labels_);
}

}  // namespace stator::fake_engine
