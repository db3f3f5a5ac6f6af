// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/response_head.h"

#include <fmt/format.h>

#include <chrono>
#include <span>

namespace stator::net::detail {
namespace {

constexpr std::string_view kWeekdays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

void append_value(std::string& out, std::string_view value) {
  const size_t begin = out.size();
  out += value;
  for (char& c : std::span(out).subspan(begin)) {
    const auto byte = static_cast<unsigned char>(c);
    c = (byte < 0x20 && c != '\t') || byte == 0x7F ? ' ' : c;
  }
}

void append_line(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  append_value(out, value);
  out += "\r\n";
}

}  // namespace

bool is_bodiless(int status) {
  return status < 200 || status == 204 || status == 304;
}

void append_head(std::string& out, const ResponseHead& head, std::span<const HttpHeader> headers) {
  out += "HTTP/1.1 ";
  out += fmt::format_int(head.status).c_str();
  out += ' ';
  out += reason_phrase(head.status);
  out += "\r\n";
  out += head.date_line;
  out += head.cors_lines;
  if (!head.content_type.empty()) {
    append_line(out, "content-type", head.content_type);
  }
  if (head.content_bytes) {
    append_line(out, "content-length", fmt::format_int(*head.content_bytes).c_str());
  } else if (head.chunked) {
    append_line(out, "transfer-encoding", "chunked");
  }
  if (head.upgrades) {
    append_line(out, "connection", "Upgrade");
  } else if (head.connection != ConnectionHeader::kNone) {
    append_line(out, "connection",
                head.connection == ConnectionHeader::kClose ? "close" : "keep-alive");
  }
  for (const HttpHeader& header : headers) {
    append_line(out, header.name, header.value);
  }
  out += "\r\n";
}

std::string make_date_line(WallTime now) {
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(std::chrono::floor<std::chrono::seconds>(now - day));
  return fmt::format(
      "date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n",
      kWeekdays[std::chrono::weekday(day).c_encoding()], static_cast<unsigned>(date.day()),
      kMonths[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()),
      time.hours().count(), time.minutes().count(), time.seconds().count());
}

}  // namespace stator::net::detail
