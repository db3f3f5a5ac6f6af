// SPDX-License-Identifier: Apache-2.0
#include "stator/app/histogram_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "stator/app/terminal.h"

namespace stator::app {
namespace {

struct Known {
  std::string_view name;
  std::string_view short_name;  ///< empty: none
  std::string_view metric;
  std::string_view help;  ///< as where it counts
  double min;             ///< Dynamo's, where a variable is missing
  double max;
  uint32_t count;
};
constexpr Known kKnown[] = {
    {"request_duration", "", "request_duration_seconds", "arrival to last byte", 1, 512, 10},
    {"time_to_first_token", "ttft", "time_to_first_token_seconds",
     "arrival to first generated token", 0.001, 480, 18},
    {"inter_token_latency", "itl", "inter_token_latency_seconds", "time between generated tokens",
     0.001, 2, 13},
    {"input_sequence", "", "input_sequence_tokens", "prompt length", 50, 128000, 12},
    {"output_sequence", "", "output_sequence_tokens", "generated length", 50, 32000, 10},
    {"cached_tokens", "", "cached_tokens", "prompt tokens served from the prefix cache", 50, 128000,
     12},
    {"embedding_latency", "", "embedding_latency_seconds",
     "arrival of a pooling request to its answer", 0.001, 10, 14},
};
constexpr uint32_t kBucketsMax = 256;

struct Buckets {
  double min = 0;
  double max = 0;
  double count = 0;

  Status check(std::string_view where) const {
    if (min > 0 && max > min && count >= 2 && count <= kBucketsMax && count == std::floor(count)) {
      return {};
    }
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: buckets {}:{}:{} must be MIN:MAX:COUNT with 0 < MIN < MAX and 2 "
                             "to {} of them",
                             where, min, max, count, kBucketsMax));
  }
};

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

/// Of the name, the short one, or the metric's whole one.
std::optional<double> read_variable(const Known& known, std::string_view part) {
  for (const std::string_view name : {known.name, known.short_name, known.metric}) {
    const std::string variable = fmt::format("DYN_METRICS_{}_{}", upper(name), part);
    const auto value = name.empty() ? std::nullopt : read_env(variable);
    if (value) {
      return number_of(*value);
    }
  }
  return std::nullopt;
}

std::optional<Buckets> from_environment(const Known& known) {
  const auto min = read_variable(known, "MIN");
  const auto max = read_variable(known, "MAX");
  const auto count = read_variable(known, "COUNT");
  if (!min && !max && !count) {
    return std::nullopt;
  }
  return Buckets{.min = min.value_or(known.min),
                 .max = max.value_or(known.max),
                 .count = count.value_or(known.count)};
}

Result<std::optional<Buckets>> from_text(std::string_view text, const Known& known) {
  std::optional<Buckets> found;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    if (name != known.name && (name != known.short_name || name.empty())) {
      continue;
    }
    Buckets buckets;
    std::string_view rest = item.substr(std::min(item.size(), equals + 1));
    for (double* part : {&buckets.min, &buckets.max, &buckets.count}) {
      const std::string_view number = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), number.size() + 1));
      *part = number_of(number).value_or(0);
    }
    STATOR_CHECK(buckets.check("frontend.histograms: " + std::string(item)));
    found = buckets;
  }
  return found;
}

Status check_names(std::string_view text) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::string_view name = item.substr(0, item.find('='));
    const bool known = std::ranges::any_of(kKnown, [name](const Known& one) {
      return !name.empty() && (one.name == name || one.short_name == name);
    });
    if (!known) {
      return Error(Code::kInvalidArgument,
                   fmt::format("frontend.histograms: '{}' is no histogram; there are "
                               "request_duration, time_to_first_token, inter_token_latency, "
                               "input_sequence, output_sequence, cached_tokens, embedding_latency",
                               name));
    }
  }
  return {};
}

double round_to_two_digits(double value) {
  const double scale = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::stod(fmt::format("{:.6g}", std::round(value / scale) * scale));
}

}  // namespace

std::vector<double> make_bounds(double min, double max, uint32_t count) {
  std::vector<double> bounds = {0};
  for (uint32_t i = 1; i < count; ++i) {
    const double value = min * std::pow(max / min, static_cast<double>(i) / (count - 1));
    const double rounded = round_to_two_digits(value);
    if (rounded > bounds.back()) {
      bounds.push_back(rounded);
    }
  }
  return bounds;
}

Status set_histogram_buckets(std::string_view text, const std::string& prefix, Metrics& metrics) {
  STATOR_CHECK(check_names(text));
  for (const Known& known : kKnown) {
    STATOR_TRY(auto buckets, from_text(text, known));
    if (!buckets) {
      buckets = from_environment(known);
    }
    if (!buckets) {
      continue;
    }
    STATOR_CHECK(buckets->check(fmt::format("DYN_METRICS_{}_*", upper(known.name))));
    const std::string name = fmt::format("{}_{}", prefix, known.metric);
    const auto bounds =
        make_bounds(buckets->min, buckets->max, static_cast<uint32_t>(buckets->count));
    // A family's series have the buckets of the first one.
    metrics.histogram(name, known.help, bounds);
    metrics.remove(name, {});
  }
  return {};
}

}  // namespace stator::app
