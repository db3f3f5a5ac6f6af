// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <string_view>

namespace stator::bench {
namespace {

constexpr size_t kSamplesMax = 4'000'000;

void append_string(std::ostream& out, std::string_view text) {
  constexpr unsigned char kSpace = 0x20;
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else {
      out << (static_cast<unsigned char>(c) < kSpace ? ' ' : c);
    }
  }
  out << '"';
}

void append_percentiles(std::ostream& out, std::string_view name, Samples& samples) {
  out << ",\"" << name << "\":{\"p50\":" << samples.percentile(0.5)
      << ",\"p90\":" << samples.percentile(0.9) << ",\"p99\":" << samples.percentile(0.99)
      << ",\"max\":" << samples.percentile(1) << '}';
}

}  // namespace

void Samples::add(double milliseconds) {
  if (values_.size() < kSamplesMax) {
    values_.push_back(static_cast<float>(milliseconds));
  }
}

double Samples::percentile(double share) {
  if (values_.empty()) {
    return 0;
  }
  const auto rank = static_cast<size_t>(std::floor(share * static_cast<double>(values_.size())));
  const auto at = values_.begin() + static_cast<ptrdiff_t>(std::min(rank, values_.size() - 1));
  std::nth_element(values_.begin(), at, values_.end());
  return *at;
}

std::string Report::to_json() {
  std::ostringstream out;
  const double window = std::max(seconds, 1e-9);
  out << std::fixed << std::setprecision(3) << "{\"seconds\":" << seconds
      << ",\"completed\":" << completed
      << ",\"requests_per_s\":" << static_cast<double>(completed) / window
      << ",\"events\":" << events << ",\"content_events\":" << content_events
      << ",\"content_events_per_s\":" << static_cast<double>(content_events) / window
      << ",\"open\":" << open << ",\"open_with_first\":" << open_with_first;
  append_percentiles(out, "latency_ms", latency);
  append_percentiles(out, "ttft_ms", ttft);
  out << std::setprecision(6) << ",\"own_cpu_s\":" << own_cpu_seconds
      << ",\"watched_cpu_s\":" << watched_cpu_seconds << ",\"errors\":{";
  for (const char* separator = ""; const auto& [kind, count] : errors) {
    out << separator;
    append_string(out, kind);
    out << ':' << count;
    separator = ",";
  }
  out << "},\"first_error\":";
  append_string(out, first_error);
  out << "}\n";
  return out.str();
}

}  // namespace stator::bench
