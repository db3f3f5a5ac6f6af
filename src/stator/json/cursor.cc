// SPDX-License-Identifier: Apache-2.0
#include "stator/json/cursor.h"

#include "stator/json/detail/byte_scan.h"
#include "stator/text/hex.h"
#include "stator/text/utf8.h"

namespace stator::json {
namespace {

bool is_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

uint32_t decode_hex4(std::string_view body, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value = (value << 4) | text::hex_value(body[at + i]);
  }
  return value;
}

// Decodes the \uXXXX (or pair) whose 'u' stands at `at`; returns the index after it.
size_t decode_unicode_escape(std::string_view body, size_t at, std::string& out) {
  uint32_t unit = decode_hex4(body, at + 1);
  at += 5;
  if (text::is_high_surrogate(unit) && body.substr(at).starts_with("\\u")) {
    const uint32_t low = decode_hex4(body, at + 2);
    if (text::is_low_surrogate(low)) {
      unit = text::join_surrogates(unit, low);
      at += 6;
    }
  }
  text::append_utf8(out, unit);
  return at;
}

char decode_short_escape(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    default:
      return letter;  // '"', '\\' and '/'
  }
}

}  // namespace

std::string_view describe(Kind kind) {
  switch (kind) {
    case Kind::kObject:
      return "an object";
    case Kind::kArray:
      return "an array";
    case Kind::kString:
      return "a string";
    case Kind::kNumber:
      return "a number";
    case Kind::kBool:
      return "a boolean";
    case Kind::kNull:
      return "null";
    case Kind::kInvalid:
      break;
  }
  return "no value";
}

void decode_string(std::string_view body, std::string& out) {
  out.clear();
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = find_run_end<StopAt::kSpecial>(body, at);
    out.append(body.data() + at, end - at);
    if (end == body.size()) {
      return;
    }
    at = end + 1;  // what ends a run inside a validated string is a backslash
    if (body[at] == 'u') {
      at = decode_unicode_escape(body, at, out);
    } else {
      out.push_back(decode_short_escape(body[at]));
      ++at;
    }
  }
}

bool Cursor::fail(std::string_view what) {
  if (error_.empty()) {
    error_ = what;
  }
  return false;
}

void Cursor::skip_space() {
  while (at_ < text_.size()) {
    const char byte = text_[at_];
    if (byte != ' ' && byte != '\n' && byte != '\r' && byte != '\t') {
      return;
    }
    ++at_;
  }
}

Kind Cursor::peek() {
  if (failed()) {
    return Kind::kInvalid;
  }
  skip_space();
  const char byte = current();
  switch (byte) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    default:
      return byte == '-' || is_digit(byte) ? Kind::kNumber : Kind::kInvalid;
  }
}

bool Cursor::open(char bracket, std::string_view what) {
  if (failed()) {
    return false;
  }
  skip_space();
  if (current() != bracket) {
    return fail(what);
  }
  if (depth_ == depth_max_) {
    return fail("nested too deeply");
  }
  ++depth_;
  ++at_;
  first_ = true;
  return true;
}

bool Cursor::enter_object() {
  return open('{', "expected '{'");
}
bool Cursor::enter_array() {
  return open('[', "expected '['");
}

// Before a member: passes the comma, or the closing bracket (then `more` is false).
bool Cursor::close_or_separate(char bracket, bool& more) {
  if (failed()) {
    return false;
  }
  skip_space();
  if (current() == bracket) {
    ++at_;
    --depth_;
    first_ = false;
    more = false;
    return true;
  }
  if (!first_) {
    if (current() != ',') {
      return fail(bracket == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    ++at_;
    skip_space();
  }
  first_ = false;
  more = true;
  return true;
}

bool Cursor::next_key(std::string_view& key, std::string& storage) {
  bool more = false;
  if (!close_or_separate('}', more) || !more) {
    return false;
  }
  if (current() != '"') {
    return fail("expected a key in double quotes");
  }
  if (!read_string(key, storage)) {
    return false;
  }
  skip_space();
  if (current() != ':') {
    return fail("expected ':'");
  }
  ++at_;
  return true;
}

bool Cursor::next_element() {
  bool more = false;
  return close_or_separate(']', more) && more;
}

bool Cursor::read_string(std::string_view& value, std::string& storage) {
  std::string_view body;
  bool escaped = false;
  if (failed() || !scan_string(body, escaped)) {
    return false;
  }
  if (!escaped) {
    value = body;
    return true;
  }
  decode_string(body, storage);
  value = storage;
  return true;
}

bool Cursor::scan_string(std::string_view& body, bool& escaped) {
  skip_space();
  if (current() != '"') {
    return fail("expected a string");
  }
  const size_t begin = ++at_;
  while (true) {
    at_ = find_run_end<StopAt::kSpecial>(text_, at_);
    if (at_ == text_.size()) {
      return fail("string without closing quote");
    }
    if (text_[at_] == '"') {
      body = text_.substr(begin, at_ - begin);
      ++at_;
      return true;
    }
    if (text_[at_] != '\\') {
      return fail("control character inside a string");
    }
    escaped = true;
    if (!scan_escape()) {
      return false;
    }
  }
}

bool Cursor::scan_escape() {
  ++at_;  // the backslash
  constexpr std::string_view kShort = "\"\\/bfnrt";
  const char letter = current();
  if (letter == 'u') {
    for (size_t i = 1; i <= 4; ++i) {
      if (at_ + i >= text_.size() || text::hex_value(text_[at_ + i]) == text::kNoHexDigit) {
        return fail("\\u without four hexadecimal digits");
      }
    }
    at_ += 5;
    return true;
  }
  if (letter == '\0' || !kShort.contains(letter)) {
    return fail("unknown escape in a string");
  }
  ++at_;
  return true;
}

bool Cursor::scan_digits() {
  if (!is_digit(current())) {
    return fail("malformed number");
  }
  while (is_digit(current())) {
    ++at_;
  }
  return true;
}

bool Cursor::scan_number() {
  if (current() == '-') {
    ++at_;
  }
  if (current() == '0') {
    ++at_;
    if (is_digit(current())) {
      return fail("number with leading zero");
    }
  } else if (!scan_digits()) {
    return false;
  }
  if (current() == '.') {
    ++at_;
    if (!scan_digits()) {
      return false;
    }
  }
  if (current() == 'e' || current() == 'E') {
    ++at_;
    if (current() == '+' || current() == '-') {
      ++at_;
    }
    return scan_digits();
  }
  return true;
}

bool Cursor::read_number(std::string_view& spelling) {
  if (failed()) {
    return false;
  }
  skip_space();
  const size_t begin = at_;
  if (!scan_number()) {
    return false;
  }
  spelling = text_.substr(begin, at_ - begin);
  return true;
}

bool Cursor::literal(std::string_view word) {
  if (failed()) {
    return false;
  }
  skip_space();
  if (!text_.substr(at_).starts_with(word)) {
    return fail("unknown literal");
  }
  at_ += word.size();
  return true;
}

bool Cursor::read_bool(bool& value) {
  if (failed()) {
    return false;
  }
  skip_space();
  value = current() == 't';
  return literal(value ? "true" : "false");
}

bool Cursor::read_null() {
  return literal("null");
}

bool Cursor::skip(std::string_view& raw) {
  if (failed()) {
    return false;
  }
  skip_space();
  const size_t begin = at_;
  if (!skip()) {
    return false;
  }
  raw = text_.substr(begin, at_ - begin);
  return true;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by depth_max_ (C3)
bool Cursor::skip() {
  std::string_view unused;
  bool flag = false;
  switch (peek()) {
    case Kind::kObject: {
      enter_object();
      bool more = true;
      while (close_or_separate('}', more) && more) {
        if (!scan_string(unused, flag)) {
          return false;
        }
        skip_space();
        if (current() != ':') {
          return fail("expected ':'");
        }
        ++at_;
        skip();
      }
      return !failed();
    }
    case Kind::kArray:
      enter_array();
      while (next_element()) {
        skip();
      }
      return !failed();
    case Kind::kString:
      return scan_string(unused, flag);
    case Kind::kNumber:
      return read_number(unused);
    case Kind::kBool:
      return read_bool(flag);
    case Kind::kNull:
      return read_null();
    case Kind::kInvalid:
      break;
  }
  return fail(at_ == text_.size() ? "text ends where a value is expected" : "expected a value");
}

bool Cursor::finish() {
  if (failed()) {
    return false;
  }
  skip_space();
  return at_ == text_.size() || fail("something follows the JSON value");
}

}  // namespace stator::json
