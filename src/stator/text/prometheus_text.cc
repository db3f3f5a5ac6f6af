// SPDX-License-Identifier: Apache-2.0
#include "stator/text/prometheus_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace stator::text {
namespace {

/// The next line that is a sample; false at the end.
bool next_sample(std::string_view& text, std::string_view& line) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!line.empty() && !line.starts_with('#')) {
      return true;
    }
  }
  return false;
}

std::string_view name_of(std::string_view line) {
  return line.substr(0, line.find_first_of("{ "));
}

std::optional<double> value_of(std::string_view line) {
  const size_t braces = line.rfind('}');
  size_t begin = braces == std::string_view::npos ? line.find(' ') : braces + 1;
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  begin = line.find_first_not_of(' ', begin);
  double value = 0;
  if (begin == std::string_view::npos ||
      std::from_chars(line.data() + begin, line.data() + line.size(), value).ec != std::errc()) {
    return std::nullopt;
  }
  return value;
}

struct Total {
  double sum = 0;
  double count = 0;
};

Total add_up(std::string_view text, std::string_view name) {
  Total total;
  std::string_view line;
  while (next_sample(text, line)) {
    if (name_of(line) == name) {
      if (const auto value = value_of(line)) {
        total.sum += *value;
        ++total.count;
      }
    }
  }
  return total;
}

}  // namespace

std::optional<double> find_metric(std::string_view text,
                                  std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const Total total = add_up(text, name); total.count > 0) {
      return total.sum;
    }
  }
  return std::nullopt;
}

std::optional<double> find_mean(std::string_view text,
                                std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const Total total = add_up(text, name); total.count > 0) {
      return total.sum / total.count;
    }
  }
  return std::nullopt;
}

std::string_view find_highest(std::string_view text, std::string_view name) {
  std::string_view found;
  double highest = 0;
  std::string_view line;
  while (next_sample(text, line)) {
    const auto value = name_of(line) == name ? value_of(line) : std::nullopt;
    if (value && !std::isnan(*value) && (found.empty() || *value > highest)) {
      found = line;
      highest = *value;
    }
  }
  return found;
}

std::optional<double> find_lowest(std::string_view text, std::string_view name,
                                  std::string_view label) {
  std::optional<double> lowest;
  std::string_view line;
  while (next_sample(text, line)) {
    if (name_of(line) == name && line.contains(label)) {
      if (const auto value = value_of(line)) {
        lowest = std::min(lowest.value_or(*value), *value);
      }
    }
  }
  return lowest;
}

std::string_view find_label(std::string_view text, std::string_view name, std::string_view label) {
  std::string_view line;
  while (next_sample(text, line)) {
    if (name_of(line) != name) {
      continue;
    }
    size_t at = 0;
    while ((at = line.find(label, at)) != std::string_view::npos) {
      const std::string_view rest = line.substr(at + label.size());
      const char before = at > 0 ? line[at - 1] : ' ';
      if ((before == '{' || before == ',') && rest.starts_with("=\"")) {
        return rest.substr(2, rest.find('"', 2) - 2);
      }
      at += label.size();
    }
  }
  return {};
}

}  // namespace stator::text
