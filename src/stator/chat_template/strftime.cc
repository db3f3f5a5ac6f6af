// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/strftime.h"

#include <array>
#include <chrono>
#include <cstdint>

#include "stator/chat_template/detail/failure.h"

namespace stator::chat_template::detail {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

struct Fields {
  int64_t year, month, day, hour, minute, second, microsecond, weekday, yearday;
};

Fields split(WallTime time) {
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::microseconds>(time - days));
  const std::chrono::sys_days new_year = date.year() / std::chrono::January / 1;
  return {static_cast<int>(date.year()),     static_cast<unsigned>(date.month()),
          static_cast<unsigned>(date.day()), clock.hours().count(),
          clock.minutes().count(),           clock.seconds().count(),
          clock.subseconds().count(),        std::chrono::weekday(days).c_encoding(),
          (days - new_year).count() + 1};
}

std::string padded(int64_t value, size_t width, char fill = '0') {
  std::string digits = std::to_string(value);
  if (digits.size() < width) {
    digits.insert(0, width - digits.size(), fill);
  }
  return digits;
}

std::string directive(const Fields& fields, char name, bool unpadded);

std::string composed(const Fields& fields, std::string_view names) {
  std::string out;
  for (const char name : names) {
    const bool is_directive = (name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z');
    out += is_directive ? directive(fields, name, false) : std::string(1, name);
  }
  return out;
}

std::string directive(const Fields& fields, char name, bool unpadded) {
  const size_t two = unpadded ? 1 : 2;
  const int64_t hour12 = fields.hour % 12 == 0 ? 12 : fields.hour % 12;
  switch (name) {
    case 'Y':
      return std::to_string(fields.year);
    case 'y':
      return padded(fields.year % 100, two);
    case 'm':
      return padded(fields.month, two);
    case 'd':
      return padded(fields.day, two);
    case 'e':
      return padded(fields.day, two, ' ');
    case 'H':
      return padded(fields.hour, two);
    case 'I':
      return padded(hour12, two);
    case 'M':
      return padded(fields.minute, two);
    case 'S':
      return padded(fields.second, two);
    case 'f':
      return padded(fields.microsecond, 6);
    case 'j':
      return padded(fields.yearday, unpadded ? 1 : 3);
    case 'p':
      return fields.hour < 12 ? "AM" : "PM";
    case 'A':
      return std::string(kDays[static_cast<size_t>(fields.weekday)]);
    case 'a':
      return std::string(kDays[static_cast<size_t>(fields.weekday)].substr(0, 3));
    case 'B':
      return std::string(kMonths[static_cast<size_t>(fields.month - 1)]);
    case 'b':
    case 'h':
      return std::string(kMonths[static_cast<size_t>(fields.month - 1)].substr(0, 3));
    case 'w':
      return std::to_string(fields.weekday);
    case 'U':  // weeks begin on Sundays, on Mondays for W
      return padded((fields.yearday + 6 - fields.weekday) / 7, two);
    case 'W':
      return padded((fields.yearday + 6 - (fields.weekday + 6) % 7) / 7, two);
    case 'u':
      return std::to_string(fields.weekday == 0 ? 7 : fields.weekday);
    case 'F':
      return composed(fields, "Y-m-d");
    case 'T':
    case 'X':
      return composed(fields, "H:M:S");
    case 'R':
      return composed(fields, "H:M");
    case 'D':
    case 'x':
      return composed(fields, "m/d/y");
    case 'c':
      return composed(fields, "a b e H:M:S Y");
    case 'z':
    case 'Z':
      return "";  // Python's datetime.now() has no time zone
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    default:
      return std::string("%") + name;
  }
}

}  // namespace

std::optional<int64_t> parse_rfc3339(std::string_view text) {
  size_t at = 0;
  bool valid = true;
  const auto number = [&](size_t digits) {
    int value = 0;
    for (size_t i = 0; i < digits; ++i, ++at) {
      valid = valid && at < text.size() && text[at] >= '0' && text[at] <= '9';
      value = valid ? value * 10 + (text[at] - '0') : 0;
    }
    return value;
  };
  const auto skip = [&](std::string_view any_of) {
    const bool found = at < text.size() && any_of.find(text[at]) != std::string_view::npos;
    at += found ? 1 : 0;
    return found;
  };
  const int year = number(4);
  valid = skip("-") && valid;
  const int month = number(2);
  valid = skip("-") && valid;
  const int day = number(2);
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!valid || !date.ok()) {
    return std::nullopt;
  }
  int64_t seconds = int64_t{std::chrono::sys_days(date).time_since_epoch().count()} * 86'400;
  if (at == text.size()) {
    return seconds;
  }
  valid = skip("Tt ");
  const int hour = number(2);
  valid = skip(":") && valid;
  const int minute = number(2);
  valid = skip(":") && valid;
  seconds += hour * 3600 + minute * 60 + number(2);
  if (valid && skip(".")) {
    while (skip("0123456789")) {
    }
  }
  if (const bool east = at < text.size() && text[at] == '+'; valid && skip("+-")) {
    const int offset_hours = number(2);
    valid = skip(":") && valid;
    const int offset = offset_hours * 3600 + number(2) * 60;
    seconds += east ? -offset : offset;
  } else {
    skip("Zz");
  }
  return valid && at == text.size() && hour < 24 && minute < 60 ? std::optional(seconds)
                                                                : std::nullopt;
}

std::string format_time(WallTime time, std::string_view format) {
  constexpr size_t kFormatBytesMax = 4096;
  if (format.size() > kFormatBytesMax) {
    fail("a time format is longer than 4096 bytes");
  }
  const Fields fields = split(time);
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const bool unpadded = format[at + 1] == '-' && at + 2 < format.size();
    at += unpadded ? 2 : 1;
    out += directive(fields, format[at], unpadded);
  }
  return out;
}

}  // namespace stator::chat_template::detail
