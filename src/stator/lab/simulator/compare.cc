// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "stator/lab/simulator/json_text.h"
#include "stator/lab/simulator/report_html.h"

namespace stator::simulator {
namespace {

constexpr size_t kBatches = 30;
constexpr double kStudent = 2.045;  // 95 %, two-sided, 29 degrees of freedom
constexpr size_t kLinesMax = size_t{1} << 31;

using Row = RequestTimes::Row;

/// Bounds of the mean difference of paired requests; nothing with fewer than two per batch.
void set_bounds(Difference& difference, const std::vector<Row>& first,
                const std::vector<Row>& second, float Row::* field) {
  std::vector<double> changes;
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (first[i].ttft_ms >= 0 && second[i].ttft_ms >= 0) {
      changes.push_back(double{second[i].*field} - double{first[i].*field});
    }
  }
  if (changes.size() < 2 * kBatches) {
    return;
  }
  std::array<double, kBatches> means{};
  double mean = 0;
  for (size_t batch = 0; batch < kBatches; ++batch) {
    const size_t begin = changes.size() * batch / kBatches;
    const size_t end = changes.size() * (batch + 1) / kBatches;
    for (size_t i = begin; i < end; ++i) {
      means[batch] += changes[i] / static_cast<double>(end - begin);
    }
    mean += means[batch] / kBatches;
  }
  double squares = 0;
  for (const double each : means) {
    squares += (each - mean) * (each - mean);
  }
  const double half = kStudent * std::sqrt(squares / (kBatches - 1) / kBatches);
  difference.low = mean - half;
  difference.high = mean + half;
  difference.has_bounds = true;
}

}  // namespace

void RequestTimes::add(const RequestRecord& record) {
  if (record.status != RequestStatus::kCompleted || record.line == 0 || record.line > kLinesMax) {
    return;
  }
  if (rows_.size() < record.line) {
    rows_.resize(record.line);
  }
  const auto ms = [](Duration time) { return static_cast<float>(time.count()) * 1e-6F; };
  rows_[record.line - 1] = {.ttft_ms = ms(record.first_token - record.arrival),
                            .tpot_ms = record.output_tokens < 2
                                           ? 0
                                           : ms(record.last_token - record.first_token) /
                                                 static_cast<float>(record.output_tokens - 1),
                            .e2e_ms = ms(record.last_token - record.arrival)};
}

std::vector<Difference> compare(const Report& first, const RequestTimes& first_times,
                                const Report& second, const RequestTimes& second_times) {
  const std::vector<Figure> before = key_figures(first);
  const std::vector<Figure> after = key_figures(second);
  std::vector<Difference> differences;
  for (size_t i = 0; i < before.size(); ++i) {
    Difference one{.name = before[i].name, .first = before[i].value, .second = after[i].value};
    if (one.name == "mean_ttft_ms") {
      set_bounds(one, first_times.rows(), second_times.rows(), &Row::ttft_ms);
    } else if (one.name == "mean_tpot_ms") {
      set_bounds(one, first_times.rows(), second_times.rows(), &Row::tpot_ms);
    } else if (one.name == "mean_e2e_latency_ms") {
      set_bounds(one, first_times.rows(), second_times.rows(), &Row::e2e_ms);
    }
    differences.push_back(std::move(one));
  }
  return differences;
}

std::string render_json(std::string_view parameter, std::span<const NamedReport> reports,
                        std::span<const Difference> differences) {
  std::string names;
  std::string texts;
  for (const NamedReport& each : reports) {
    const std::string_view separator = names.empty() ? "" : ", ";
    fmt::format_to(std::back_inserter(names), "{}{}", separator, quote_json(each.name));
    fmt::format_to(std::back_inserter(texts), "{}{}", separator, render_json(each.report));
  }
  std::string out =
      fmt::format("{{\"parameter\": {},\n\"values\": [{}],\n\"reports\": [{}],\n\"differences\": [",
                  quote_json(parameter), names, texts);
  for (const Difference& one : differences) {
    fmt::format_to(std::back_inserter(out),
                   "{}\n  {{\"name\": \"{}\", \"first\": {}, \"second\": {}, \"change\": {}",
                   &one == differences.data() ? "" : ",", one.name, one.first, one.second,
                   one.change());
    if (one.has_bounds) {
      fmt::format_to(std::back_inserter(out), ", \"low\": {}, \"high\": {}", one.low, one.high);
    }
    out += '}';
  }
  return out + "\n]}\n";
}

std::string render_table(std::span<const Difference> differences, const std::string& first,
                         const std::string& second) {
  std::string out = fmt::format("{:<32} {:>16} {:>16} {:>14} {:>9}   {}\n", "", first.substr(0, 16),
                                second.substr(0, 16), "change", "%", "95 % of the change");
  for (const Difference& one : differences) {
    const double percent = one.first == 0 ? 0 : 100 * one.change() / one.first;
    fmt::format_to(std::back_inserter(out), "{:<32} {:>16.4g} {:>16.4g} {:>+14.4g} {:>+8.2f}%",
                   one.name, one.first, one.second, one.change(), percent);
    if (one.has_bounds) {
      fmt::format_to(std::back_inserter(out), "   {:+.4g} … {:+.4g}{}", one.low, one.high,
                     one.significant() ? "" : " (may be chance)");
    }
    out += '\n';
  }
  return out;
}

}  // namespace stator::simulator
