// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/strings.h"
#include "stator/chat_template/detail/text.h"
#include "stator/chat_template/detail/urlize.h"
#include "stator/text/html.h"
#include "stator/text/utf8.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

Value filter_safe(Interpreter& interpreter, Value input, Args) {
  return Value::markup(interpreter.text_of(input));
}

Value filter_forceescape(Interpreter& interpreter, Value input, Args) {
  return Value::markup(
      interpreter.arena().copy(std::string_view(text::escape_html(interpreter.text_of(input)))));
}

Value filter_escape(Interpreter& interpreter, Value input, Args arguments) {
  return input.is_markup() ? input : filter_forceescape(interpreter, input, arguments);
}

/// Removes everything from `open` to the next `close`, again and again.
void remove_between(std::string& text, std::string_view open, std::string_view close) {
  std::string kept;
  size_t at = 0;
  while (true) {
    const size_t start = text.find(open, at);
    const size_t end = start == std::string::npos ? start : text.find(close, start);
    if (end == std::string::npos) {
      break;
    }
    kept.append(text, at, start - at);
    at = end + close.size();
  }
  kept.append(text, at, text.size() - at);
  text = std::move(kept);
}

/// The character behind "&name;" or "&#number;"; 0 when unknown.
char32_t entity_point(std::string_view name) {
  static constexpr std::pair<std::string_view, char32_t> kNames[] = {
      {"amp", U'&'},      {"lt", U'<'},      {"gt", U'>'},      {"quot", U'"'},
      {"apos", U'\''},    {"nbsp", 0xA0},    {"copy", 0xA9},    {"reg", 0xAE},
      {"deg", 0xB0},      {"middot", 0xB7},  {"laquo", 0xAB},   {"raquo", 0xBB},
      {"times", 0xD7},    {"ndash", 0x2013}, {"mdash", 0x2014}, {"lsquo", 0x2018},
      {"rsquo", 0x2019},  {"ldquo", 0x201C}, {"rdquo", 0x201D}, {"bull", 0x2022},
      {"hellip", 0x2026}, {"euro", 0x20AC},  {"trade", 0x2122},
  };
  if (!name.starts_with('#')) {
    const auto* found =
        std::ranges::find(kNames, name, &std::pair<std::string_view, char32_t>::first);
    return found == std::end(kNames) ? 0 : found->second;
  }
  const bool hex = name.size() > 1 && (name[1] | 0x20) == 'x';
  const std::string_view digits = name.substr(hex ? 2 : 1);
  uint32_t point = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), point, hex ? 16 : 10);
  const bool valid = parsed.ec == std::errc{} && parsed.ptr == digits.data() + digits.size();
  if (!valid) {
    return 0;
  }
  return point == 0 || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000) ? 0xFFFD : point;
}

std::string unescape_html(std::string_view text) {
  constexpr size_t kNameMax = 32;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end =
        text[at] == '&' ? text.substr(0, at + kNameMax).find(';', at) : std::string::npos;
    const char32_t point =
        end == std::string_view::npos ? 0 : entity_point(text.substr(at + 1, end - at - 1));
    if (point == 0) {
      out += text[at++];
      continue;
    }
    text::append_utf8(out, point);
    at = end + 1;
  }
  return out;
}

Value filter_striptags(Interpreter& interpreter, Value input, Args) {
  std::string text(interpreter.text_of(input));
  interpreter.charge(text.size() / 16);
  remove_between(text, "<!--", "-->");
  remove_between(text, "<", ">");
  std::string words;
  bool in_gap = false;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (is_space(next_code_point(text, at))) {
      in_gap = true;
      continue;
    }
    words += in_gap && !words.empty() ? " " : "";
    in_gap = false;
    words.append(text, start, at - start);
  }
  return interpreter.make_string(unescape_html(words));
}

Value filter_xmlattr(Interpreter& interpreter, Value input, Args arguments) {
  if (!input.is_dict()) {
    fail_operand("xmlattr needs a mapping, not", input);
  }
  const auto escaped = [&](const Value& value) {
    return value.is_markup() ? std::string(value.text())
                             : text::escape_html(interpreter.text_of(value));
  };
  std::string out;
  for (const auto& entry : input.as_dict().items()) {
    if (entry.value.is_none() || entry.value.is_undefined()) {
      continue;
    }
    if (!entry.key.is_string()) {
      fail_operand("xmlattr needs names that are text, not", entry.key);
    }
    const std::string_view key = entry.key.text();
    for (size_t at = 0; at < key.size();) {
      const char32_t point = next_code_point(key, at);
      if (point == U'/' || point == U'>' || point == U'=' || is_space(point)) {
        fail("Invalid character in attribute name: '" + std::string(key) + "'");
      }
    }
    out += out.empty() ? "" : " ";
    out += escaped(entry.key) + "=\"" + escaped(entry.value) + "\"";
    check_text_size(out);
  }
  const bool autospace = arguments.get_bool(0, "autospace", true);
  return interpreter.make_string((autospace && !out.empty() ? " " : "") + out);
}

Value filter_urlize(Interpreter& interpreter, Value input, Args arguments) {
  UrlizeStyle style;
  const Value* limit = arguments.get(0, "trim_url_limit");
  style.trim_limit =
      limit == nullptr || limit->is_none() ? -1 : arguments.get_int(0, "trim_url_limit", -1);
  std::string_view given;
  if (const Value* rel = arguments.get(3, "rel"); rel != nullptr && !rel->is_none()) {
    given = arguments.get_text(3, "rel", "");
  }
  style.rel = urlize_rel(given, arguments.get_bool(1, "nofollow", false));
  if (const Value* target = arguments.get(2, "target"); target != nullptr && !target->is_none()) {
    style.target = interpreter.text_of(*target);
  }
  if (const Value* more = arguments.get(4, "extra_schemes"); more != nullptr && !more->is_none()) {
    fail("urlize knows no extra_schemes here");
  }
  const std::string text =
      input.is_markup() ? std::string(input.text()) : text::escape_html(interpreter.text_of(input));
  interpreter.charge(text.size());
  const std::string out = urlize(text, style);
  check_text_size(out);
  return interpreter.make_string(out);
}

Value filter_filesizeformat(Interpreter& interpreter, Value input, Args arguments) {
  const Value otherwise = Value::none();
  const Value as_float =
      (*find_filter("float"))(interpreter, input, CallArguments{{&otherwise, 1}, {}, {}});
  if (as_float.is_none()) {
    fail_operand("filesizeformat needs a number, not", input);
  }
  const bool binary = arguments.get_bool(0, "binary", false);
  const double base = binary ? 1024 : 1000;
  const double bytes = as_float.as_double();
  if (bytes == 1) {
    return Value::string("1 Byte");
  }
  std::array<char, 350> digits{};
  const auto write = [&](double value, int precision) {
    const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                       std::chars_format::fixed, precision);
    return std::string(digits.data(), written.ptr);
  };
  if (bytes < base) {
    return interpreter.make_string(write(std::trunc(bytes) + 0.0, 0) + " Bytes");
  }
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  size_t at = 0;
  while (at + 1 < kPrefixes.size() && bytes >= unit) {
    unit *= base;
    ++at;
  }
  std::string out = write(base * bytes / unit, 1);
  out += ' ';
  out += binary && at == 0 ? 'K' : kPrefixes[at];
  return interpreter.make_string(out + (binary ? "iB" : "B"));
}

constexpr Filter kFilters[] = {
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_filesizeformat, "binary="},
    {"forceescape", filter_forceescape},
    {"safe", filter_safe},
    {"striptags", filter_striptags},
    {"urlize", filter_urlize, "trim_url_limit= nofollow= target= rel= extra_schemes="},
    {"xmlattr", filter_xmlattr, "autospace="},
};

}  // namespace

std::span<const Filter> html_filters() {
  return kFilters;
}

}  // namespace stator::chat_template::detail
