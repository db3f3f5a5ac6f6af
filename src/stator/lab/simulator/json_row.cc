// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/json_row.h"

#include <fmt/format.h>

#include <cmath>

#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {
namespace {

constexpr double kTimeMsMax = 4e12;  // also holds times since 1970, and fits in nanoseconds
static_assert(LineReader::kPadding >= simdjson::SIMDJSON_PADDING);

}  // namespace

Result<JsonRow> JsonRow::parse(simdjson::dom::parser& parser, std::string_view line,
                               const LineReader& lines) {
  const auto parsed = parser.parse(line.data(), line.size(), false);
  if (parsed.error() != simdjson::SUCCESS) {
    return lines.fail("line",
                      fmt::format("not JSON ({})", simdjson::error_message(parsed.error())));
  }
  Object row;
  if (parsed.get(row) != simdjson::SUCCESS) {
    return lines.fail("line", "must be a JSON object, one per line");
  }
  return JsonRow(row, lines);
}

std::pair<std::string_view, simdjson::simdjson_result<JsonRow::Element>> JsonRow::find(
    Names names) const {
  const auto is_there = [](const simdjson::simdjson_result<Element>& value) {
    return value.error() == simdjson::SUCCESS && !value.is_null();
  };
  const auto first = row_[names.name];
  if (names.alias.empty() || is_there(first)) {
    return {names.name, first};
  }
  const auto second = row_[names.alias];
  return is_there(second) ? std::pair(names.alias, second) : std::pair(names.name, first);
}

std::optional<JsonRow> JsonRow::find_object(std::string_view name) const {
  Object inner;
  if (row_[name].get(inner) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return JsonRow(inner, *lines_);
}

Result<uint32_t> JsonRow::read_tokens(Names names) const {
  const auto [found, value] = find(names);
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS) {
    return fail(found, "must be a whole number of tokens");
  }
  if (!(number >= 1) || number > kTraceTokensMax || number != std::floor(number)) {
    return fail(found,
                fmt::format("must be a whole number from 1 to {}, is {}", kTraceTokensMax, number));
  }
  return static_cast<uint32_t>(number);
}

Result<Duration> JsonRow::read_time(Names names, TimeUnit unit) const {
  const auto [name, value] = find(names);
  const bool seconds = unit == TimeUnit::kSeconds;
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS) {
    return fail(name, seconds ? "must be a number of seconds" : "must be a number of milliseconds");
  }
  number *= seconds ? 1000 : 1;
  if (!std::isfinite(number) || number < 0 || number > kTimeMsMax) {
    return fail(name, fmt::format("must be from 0 to {} ms, is {}", kTimeMsMax, number));
  }
  // Whole milliseconds stay exact also where a double no longer holds nanoseconds.
  const double whole = std::floor(number);
  return Duration(static_cast<int64_t>(whole) * 1'000'000 + std::llround((number - whole) * 1e6));
}

Result<double> JsonRow::read_number(std::string_view name, double low, double high,
                                    double absent) const {
  const auto value = row_[name];
  if (value.error() != simdjson::SUCCESS || value.is_null()) {
    return absent;
  }
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS || !(number >= low) || number > high) {
    return fail(name, fmt::format("must be a number from {} to {}", low, high));
  }
  return number;
}

Status JsonRow::read_text(std::string_view name, std::string& text) const {
  text.clear();
  const auto value = row_[name];
  if (value.error() != simdjson::SUCCESS || value.is_null()) {
    return {};
  }
  std::string_view string;
  if (value.get(string) == simdjson::SUCCESS) {
    text = string;
    return {};
  }
  uint64_t number = 0;
  if (value.get(number) == simdjson::SUCCESS) {
    text = std::to_string(number);
    return {};
  }
  return fail(name, "must be a string");
}

Status JsonRow::read_ids(std::string_view name, std::vector<uint64_t>& ids) const {
  ids.clear();
  const auto value = row_[name];
  if (value.error() != simdjson::SUCCESS || value.is_null()) {
    return {};
  }
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    return fail(name, "must be an array of whole numbers ≥ 0");
  }
  for (const Element id : array) {
    uint64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS) {
      return fail(name, fmt::format("entry {}: must be a whole number ≥ 0", ids.size()));
    }
    ids.push_back(number);
  }
  return {};
}

Status JsonRow::read_texts(std::string_view name, std::vector<std::string>& texts) const {
  texts.clear();
  const auto value = row_[name];
  if (value.error() != simdjson::SUCCESS || value.is_null()) {
    return {};
  }
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    return fail(name, "must be an array of strings");
  }
  for (const Element each : array) {
    std::string_view text;
    uint64_t number = 0;
    if (each.get(text) == simdjson::SUCCESS) {
      texts.emplace_back(text);
    } else if (each.get(number) == simdjson::SUCCESS) {
      texts.push_back(std::to_string(number));
    } else {
      return fail(name, fmt::format("entry {}: must be a string", texts.size()));
    }
  }
  return {};
}

}  // namespace stator::simulator
