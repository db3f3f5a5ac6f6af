// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/strftime.h"

#include <array>
#include <chrono>
#include <cstdint>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

struct Fields {
  int64_t year, month, day, hour, minute, second, microsecond, weekday, yearday;
  int64_t week_year, week;  // ISO 8601: a week belongs to the year of its Thursday
  int64_t epoch_seconds;
};

int64_t days_into_year(std::chrono::sys_days day) {
  const std::chrono::year_month_day date(day);
  return (day - std::chrono::sys_days(date.year() / std::chrono::January / 1)).count();
}

Fields split(WallTime time) {
  const auto days = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(days);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::microseconds>(time - days));
  const std::chrono::weekday weekday(days);
  const auto thursday = days + std::chrono::days(4 - int64_t{weekday.iso_encoding()});
  return {static_cast<int>(date.year()),
          static_cast<unsigned>(date.month()),
          static_cast<unsigned>(date.day()),
          clock.hours().count(),
          clock.minutes().count(),
          clock.seconds().count(),
          clock.subseconds().count(),
          weekday.c_encoding(),
          days_into_year(days) + 1,
          static_cast<int>(std::chrono::year_month_day(thursday).year()),
          days_into_year(thursday) / 7 + 1,
          std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count()};
}

/// The flag between '%' and the name: '-' no padding, '_' blanks, '0' zeros, '^' capitals.
constexpr std::string_view kFlags = "-_0^";

std::string padded(int64_t value, size_t width, char flag, char fill = '0') {
  std::string digits = std::to_string(value);
  fill = flag == '_' ? ' ' : flag == '0' ? '0' : fill;
  if (digits.size() < width && flag != '-') {
    digits.insert(0, width - digits.size(), fill);
  }
  return digits;
}

std::string directive(const Fields& fields, char name, char flag);

std::string composed(const Fields& fields, std::string_view names) {
  std::string out;
  for (const char name : names) {
    const bool is_directive = (name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z');
    out += is_directive ? directive(fields, name, 0) : std::string(1, name);
  }
  return out;
}

/// %p, %P, %r and names of days and months.
std::string word_directive(const Fields& fields, char name) {
  const std::string_view day = kDays[static_cast<size_t>(fields.weekday)];
  const std::string_view month = kMonths[static_cast<size_t>(fields.month - 1)];
  switch (name) {
    case 'p':
      return fields.hour < 12 ? "AM" : "PM";
    case 'P':
      return fields.hour < 12 ? "am" : "pm";
    case 'A':
      return std::string(day);
    case 'a':
      return std::string(day.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    default:
      return "";
  }
}

std::string number_directive(const Fields& fields, char name, char flag) {
  const int64_t hour12 = fields.hour % 12 == 0 ? 12 : fields.hour % 12;
  switch (name) {
    case 'Y':
      return std::to_string(fields.year);
    case 'G':
      return std::to_string(fields.week_year);
    case 'C':
      return padded(fields.year / 100, 2, flag);
    case 'y':
      return padded(fields.year % 100, 2, flag);
    case 'g':
      return padded(fields.week_year % 100, 2, flag);
    case 'm':
      return padded(fields.month, 2, flag);
    case 'd':
      return padded(fields.day, 2, flag);
    case 'e':
      return padded(fields.day, 2, flag, ' ');
    case 'H':
      return padded(fields.hour, 2, flag);
    case 'k':
      return padded(fields.hour, 2, flag, ' ');
    case 'I':
      return padded(hour12, 2, flag);
    case 'l':
      return padded(hour12, 2, flag, ' ');
    case 'M':
      return padded(fields.minute, 2, flag);
    case 'S':
      return padded(fields.second, 2, flag);
    case 's':
      return std::to_string(fields.epoch_seconds);
    case 'f':
      return padded(fields.microsecond, 6, 0);
    case 'j':
      return padded(fields.yearday, 3, flag);
    case 'w':
      return std::to_string(fields.weekday);
    case 'u':
      return std::to_string(fields.weekday == 0 ? 7 : fields.weekday);
    case 'U':  // weeks begin on Sundays, on Mondays for W
      return padded((fields.yearday + 6 - fields.weekday) / 7, 2, flag);
    case 'W':
      return padded((fields.yearday + 6 - (fields.weekday + 6) % 7) / 7, 2, flag);
    case 'V':
      return padded(fields.week, 2, flag);
    default:
      return "";
  }
}

/// Empty for a name that is none.
std::string directive(const Fields& fields, char name, char flag) {
  switch (name) {
    case 'F':
      return composed(fields, "Y-m-d");
    case 'T':
    case 'X':
      return composed(fields, "H:M:S");
    case 'r':
      return composed(fields, "I:M:S p");
    case 'R':
      return composed(fields, "H:M");
    case 'D':
    case 'x':
      return composed(fields, "m/d/y");
    case 'c':
      return composed(fields, "a b e H:M:S Y");
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    default: {
      const std::string word = word_directive(fields, name);
      return word.empty()  ? number_directive(fields, name, flag)
             : flag == '^' ? to_upper(word)
                           : word;
    }
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
    const size_t start = at++;
    const bool has_flag =
        kFlags.find(format[at]) != std::string_view::npos && at + 1 < format.size();
    const char flag = has_flag ? format[at++] : '\0';
    const char name = format[at];
    if (name == 'z' || name == 'Z') {
      continue;  // Python's datetime.now() has no time zone
    }
    const std::string text = directive(fields, name, flag);
    out += text.empty() ? format.substr(start, at + 1 - start) : std::string_view(text);
  }
  return out;
}

}  // namespace stator::chat_template::detail
