// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/csv_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

namespace stator::simulator {
namespace {

using Columns = std::array<std::string_view, 3>;  // time, prompt, answer

constexpr Columns columns_of(CsvDialect dialect) {
  return dialect == CsvDialect::kAzure ? Columns{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
                                       : Columns{"Timestamp", "Request tokens", "Response tokens"};
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\"";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// The cells of a line; commas inside quotes do not part cells.
void split(std::string_view line, std::vector<std::string_view>& cells) {
  cells.clear();
  size_t begin = 0;
  bool quoted = false;
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i == line.size() || (line[i] == ',' && !quoted)) {
      cells.push_back(trim(line.substr(begin, i - begin)));
      begin = i + 1;
    } else if (line[i] == '"') {
      quoted = !quoted;
    }
  }
}

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && std::isfinite(number)
             ? std::optional(number)
             : std::nullopt;
}

/// The number at `at`, -1 if it has not so many digits.
int read_digits(std::string_view text, size_t at, size_t digits) {
  const std::string_view number = text.substr(std::min(at, text.size()), digits);
  int value = number.size() == digits ? 0 : -1;
  for (const char digit : number) {
    value = value < 0 || digit < '0' || digit > '9' ? -1 : value * 10 + (digit - '0');
  }
  return value;
}

/// How far "+02:00", "-0530" or "+02" is ahead of UTC; nothing, Z and UTC are not.
std::optional<Duration> parse_zone(std::string_view text) {
  text.remove_prefix(text.starts_with(' ') ? 1 : 0);
  if (text.empty() || text == "Z" || text == "UTC") {
    return Duration();
  }
  const size_t minutes_at = text.contains(':') ? 4 : 3;
  const int hours = read_digits(text, 1, 2);
  const int minutes = text.size() == 3 ? 0 : read_digits(text, minutes_at, 2);
  if ((text[0] != '+' && text[0] != '-') || hours < 0 || hours > 23 || minutes < 0 ||
      minutes > 59 || text.size() > minutes_at + 2) {
    return std::nullopt;
  }
  return (text[0] == '+' ? 1 : -1) * (std::chrono::hours(hours) + std::chrono::minutes(minutes));
}

/// "2023-11-16 18:15:46.6805900", also with a T and a time zone: nanoseconds since 1970, UTC.
std::optional<Duration> parse_date(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' ||
      (text[10] != ' ' && text[10] != 'T') || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const int year = read_digits(text, 0, 4);
  const std::chrono::year_month_day date(
      std::chrono::year(year), std::chrono::month(static_cast<unsigned>(read_digits(text, 5, 2))),
      std::chrono::day(static_cast<unsigned>(read_digits(text, 8, 2))));
  const int hour = read_digits(text, 11, 2);
  const int minute = read_digits(text, 14, 2);
  const int second = read_digits(text, 17, 2);
  // Beyond these years nanoseconds do not fit.
  if (year < 1900 || year > 2200 || !date.ok() || hour < 0 || hour > 23 || minute < 0 ||
      minute > 59 || second < 0 || second > 60) {
    return std::nullopt;
  }
  Duration time = std::chrono::sys_days(date).time_since_epoch();
  time += std::chrono::hours(hour) + std::chrono::minutes(minute) + std::chrono::seconds(second);
  text.remove_prefix(19);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    for (int64_t unit = 100'000'000; !text.empty() && text[0] >= '0' && text[0] <= '9';
         unit /= 10, text.remove_prefix(1)) {
      time += Duration(unit * (text[0] - '0'));
    }
  }
  const auto zone = parse_zone(text);
  return zone ? std::optional(time - *zone) : std::nullopt;
}

class CsvTrace final : public TraceSource {
 public:
  CsvTrace(LineReader lines, CsvDialect dialect, uint32_t block_tokens)
      : lines_(std::move(lines)), dialect_(dialect), block_tokens_(block_tokens) {}

  Status read_header() {
    std::string_view line;
    STATOR_TRY(const bool found, lines_.next(line));
    if (!found) {
      return {};
    }
    split(line, cells_);
    for (size_t i = 0; i < at_.size(); ++i) {
      const std::string_view name = columns_of(dialect_)[i];
      const auto cell = std::ranges::find(cells_, name);
      if (cell == cells_.end()) {
        return lines_.fail("header", fmt::format("has no column '{}'", name));
      }
      at_[i] = static_cast<size_t>(cell - cells_.begin());
    }
    return {};
  }

  Result<bool> next(TraceRequest& request) override {
    std::string_view line;
    STATOR_TRY(const bool found, lines_.next(line));
    if (!found) {
      return false;
    }
    split(line, cells_);
    if (cells_.size() <= std::ranges::max(at_)) {
      return lines_.fail("line", fmt::format("has only {} columns", cells_.size()));
    }
    request = {.line = lines_.number()};
    STATOR_TRY(const Duration time, read_time());
    begin_ = begin_.value_or(time);
    request.arrival = time - *begin_;
    STATOR_TRY(request.input_tokens, read_tokens(1, 1));
    STATOR_TRY(const uint32_t answer, read_tokens(2, 0));
    request.output_tokens = std::max(answer, 1U);
    return true;
  }

  uint32_t block_tokens() const override { return block_tokens_; }

 private:
  Result<Duration> read_time() const {
    constexpr double kSecondsMax = 4e9;
    const std::string_view cell = cells_[at_[0]];
    if (const auto seconds = parse_number(cell)) {
      if (*seconds < 0 || *seconds > kSecondsMax) {
        return fail(0, fmt::format("must be from 0 to {} s, is {}", kSecondsMax, *seconds));
      }
      return Duration(std::llround(*seconds * 1e9));
    }
    if (const auto date = dialect_ == CsvDialect::kAzure ? parse_date(cell) : std::nullopt) {
      return *date;
    }
    return fail(0, fmt::format("'{}' is neither a number of seconds nor a date", cell));
  }

  Result<uint32_t> read_tokens(size_t column, uint32_t low) const {
    const std::string_view cell = cells_[at_[column]];
    const auto number = parse_number(cell);
    if (!number || *number < low || *number > kTraceTokensMax || *number != std::floor(*number)) {
      return fail(column, fmt::format("must be a whole number from {} to {}, is '{}'", low,
                                      kTraceTokensMax, cell));
    }
    return static_cast<uint32_t>(*number);
  }

  Error fail(size_t column, std::string_view what) const {
    return lines_.fail(columns_of(dialect_)[column], what);
  }

  LineReader lines_;
  const CsvDialect dialect_;
  const uint32_t block_tokens_;
  std::array<size_t, 3> at_{};
  std::vector<std::string_view> cells_;  // of the current line
  std::optional<Duration> begin_;
};

}  // namespace

bool is_header_of(CsvDialect dialect, std::string_view header) {
  std::vector<std::string_view> cells;
  split(header, cells);
  return std::ranges::all_of(columns_of(dialect), [&](std::string_view name) {
    return std::ranges::find(cells, name) != cells.end();
  });
}

Result<std::unique_ptr<TraceSource>> make_csv_trace(LineReader lines, CsvDialect dialect,
                                                    uint32_t block_tokens) {
  auto trace = std::make_unique<CsvTrace>(std::move(lines), dialect, block_tokens);
  STATOR_CHECK(trace->read_header());
  return trace;
}

}  // namespace stator::simulator
