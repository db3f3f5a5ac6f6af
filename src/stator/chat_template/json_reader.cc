// SPDX-License-Identifier: Apache-2.0
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/json_scan.h"
#include "stator/chat_template/detail/meter.h"
#include "stator/chat_template/detail/text.h"
#include "stator/chat_template/value.h"
#include "stator/text/utf8.h"

namespace stator::chat_template {
namespace {

constexpr int kDepthMax = 128;

// What reading costs, next to a template's steps of some 50 ns.
constexpr uint64_t kValuesPerStep = 4;
constexpr uint64_t kBytesPerStep = 1024;
// Escapes between two looks at the meter.
constexpr uint32_t kEscapesPerStep = 16;

/// By the character behind the backslash; zero where it is none, or `u`.
constexpr auto kMeaningOfEscape = [] {
  std::array<char, 256> meaning{};
  meaning['"'] = '"';
  meaning['\\'] = '\\';
  meaning['/'] = '/';
  meaning['b'] = '\b';
  meaning['f'] = '\f';
  meaning['n'] = '\n';
  meaning['r'] = '\r';
  meaning['t'] = '\t';
  return meaning;
}();

/// One pass, recursive descent; strings without escapes are not copied.
class Reader {
 public:
  Reader(std::string_view json, Arena& arena) : json_(json), arena_(arena), meter_(arena.meter()) {}

  Value read_document() {
    const Value value = read_value(0);
    skip_space();
    if (at_ != json_.size()) {
      fail_here("text after the end of the value");
    }
    return value;
  }

 private:
  [[noreturn]] void fail_here(std::string_view what) const {
    detail::fail("not valid JSON at byte " + std::to_string(at_) + ": " + std::string(what));
  }
  char peek() const { return at_ < json_.size() ? json_[at_] : '\0'; }
  void skip_space() {
    while (at_ < json_.size() &&
           (json_[at_] == ' ' || json_[at_] == '\n' || json_[at_] == '\r' || json_[at_] == '\t')) {
      ++at_;
    }
  }
  void charge(uint64_t steps) {
    if (meter_ != nullptr && steps > 0) {
      meter_->charge(steps);
    }
  }
  Value read_value(int depth);
  Value read_literal(std::string_view word, Value value);
  Value read_number();
  Value read_list(int depth);
  Value read_dict(int depth);
  std::string_view read_string();
  std::string_view read_escaped(size_t start);
  std::string_view read_code_point();
  size_t string_end(size_t at) const;
  static char* append_run(char* out, std::string_view run) {
    return std::ranges::copy(run, out).out;  // unlike memcpy it takes nothing to nowhere
  }
  char32_t read_hex4();

  std::string_view json_;
  Arena& arena_;
  Meter* meter_;
  size_t at_ = 0;
  uint64_t values_ = 0;
  std::string scratch_;  // a character
};

Value Reader::read_literal(std::string_view word, Value value) {
  if (json_.substr(at_, word.size()) != word) {
    fail_here("expected a value");
  }
  at_ += word.size();
  return value;
}

Value Reader::read_number() {
  const size_t start = at_;
  bool is_integer = true;
  if (peek() == '-') {
    ++at_;
  }
  const size_t digits = at_;
  if (digits == start && (peek() < '0' || peek() > '9')) {
    fail_here(json_.substr(at_).starts_with("\xEF\xBB\xBF") ? "a byte order mark: leave it out"
                                                            : "expected a value");
  }
  while (true) {
    const char c = peek();
    if (c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') {
      is_integer = false;
    } else if (c < '0' || c > '9') {
      break;
    }
    ++at_;
  }
  const std::string_view text = json_.substr(start, at_ - start);
  if (at_ == digits || json_[digits] == '.' || json_[digits] == 'e' || json_[digits] == 'E' ||
      (json_[digits] == '0' && at_ > digits + 1 && is_integer)) {
    fail_here("expected a number");
  }
  if (is_integer) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} ? Value::integer(value) : Value::big_integer(text);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.back() == '.') {
    fail_here("expected a number");
  }
  if (error == std::errc::result_out_of_range) {
    const bool tiny =
        text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
    value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    return Value::number(text.front() == '-' ? -value : value);
  }
  return Value::number(value);
}

std::string_view Reader::read_string() {
  ++at_;  // the opening quote
  const size_t start = at_;
  at_ = detail::plain_run_end(json_, at_);
  charge((at_ - start) / kBytesPerStep);
  if (peek() == '"') {
    return json_.substr(start, at_++ - start);
  }
  return read_escaped(start);
}

/// Of the string that byte `at` is in: its quote, or the end of the text.
size_t Reader::string_end(size_t at) const {
  const size_t begin = at;
  while (true) {
    const size_t quote = std::min(json_.find('"', at), json_.size());
    size_t backslashes = 0;
    while (quote - backslashes > begin && json_[quote - backslashes - 1] == '\\') {
      ++backslashes;
    }
    if (quote == json_.size() || backslashes % 2 == 0) {
      return quote;
    }
    at = quote + 1;
  }
}

/// Into the arena at once: prompts are long, and code has an escape every few bytes.
std::string_view Reader::read_escaped(size_t start) {
  const size_t bytes_max = string_end(at_) - start;  // no escape is shorter than what it stands for
  char* const text = arena_.array<char>(bytes_max + detail::kScanBytes);
  char* out = append_run(text, json_.substr(start, at_ - start));
  uint32_t escapes = 0;
  while (peek() != '"') {
    charge(++escapes % kEscapesPerStep == 0 ? 1 : 0);
    if (at_ >= json_.size()) {
      fail_here("a string without end");
    }
    if (peek() != '\\') {
      fail_here("a control character in a string");
    }
    ++at_;
    const char plain = kMeaningOfEscape[static_cast<unsigned char>(peek())];
    if (plain != '\0') {
      *out++ = plain;
      ++at_;
    } else {
      out = append_run(out, read_code_point());
    }
    const size_t end = detail::copy_plain_run(json_, at_, out);
    out += end - at_;
    at_ = end;
  }
  charge((at_ - start) / kBytesPerStep);
  ++at_;
  return {text, static_cast<size_t>(out - text)};
}

char32_t Reader::read_hex4() {
  uint32_t value = 0;
  const std::string_view digits = json_.substr(std::min(at_, json_.size()), 4);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || digits.size() != 4 || end != digits.data() + 4) {
    fail_here("expected four hexadecimal digits");
  }
  at_ += 4;
  return value;
}

/// What `uXXXX` stands for; valid until the next one.
std::string_view Reader::read_code_point() {
  if (peek() != 'u') {
    fail_here("an unknown escape");
  }
  ++at_;
  char32_t point = read_hex4();
  if (text::is_high_surrogate(point) && json_.substr(at_, 2) == "\\u") {
    const size_t before = at_;
    at_ += 2;
    const char32_t low = read_hex4();
    if (text::is_low_surrogate(low)) {
      point = text::join_surrogates(point, low);
    } else {
      at_ = before;
    }
  }
  scratch_.clear();
  text::append_utf8(scratch_, point);
  return scratch_;
}

Value Reader::read_list(int depth) {
  ++at_;
  auto* list = ListData::make(arena_, 0);
  skip_space();
  if (peek() == ']') {
    ++at_;
    return Value::list(list);
  }
  while (true) {
    list->push(arena_, read_value(depth + 1));
    skip_space();
    const char next = peek();
    if (next != ',' && next != ']') {
      fail_here("expected ',' or ']'");
    }
    ++at_;
    if (next == ']') {
      return Value::list(list);
    }
  }
}

Value Reader::read_dict(int depth) {
  ++at_;
  auto* dict = DictData::make(arena_, 4);
  skip_space();
  if (peek() == '}') {
    ++at_;
    return Value::dict(dict);
  }
  while (true) {
    skip_space();
    if (peek() != '"') {
      fail_here("expected a key");
    }
    const std::string_view key = read_string();
    skip_space();
    if (peek() != ':') {
      fail_here("expected ':'");
    }
    ++at_;
    const Value value = read_value(depth + 1);
    dict->set_text(arena_, key, value);
    skip_space();
    const char next = peek();
    if (next != ',' && next != '}') {
      fail_here("expected ',' or '}'");
    }
    ++at_;
    if (next == '}') {
      return Value::dict(dict);
    }
  }
}

Value Reader::read_value(int depth) {
  if (depth > kDepthMax) {
    fail_here("nested deeper than " + std::to_string(kDepthMax) + " levels");
  }
  charge(++values_ % kValuesPerStep == 0 ? 1 : 0);
  skip_space();
  switch (peek()) {
    case '{':
      return read_dict(depth);
    case '[':
      return read_list(depth);
    case '"':
      return Value::string(read_string());
    case 't':
      return read_literal("true", Value::boolean(true));
    case 'f':
      return read_literal("false", Value::boolean(false));
    case 'n':
      return read_literal("null", Value::none());
    case 'N':
      return read_literal("NaN", Value::number(std::numeric_limits<double>::quiet_NaN()));
    case 'I':
      return read_literal("Infinity", Value::number(std::numeric_limits<double>::infinity()));
    case '-':
      if (json_.substr(at_).starts_with("-I")) {
        return read_literal("-Infinity", Value::number(-std::numeric_limits<double>::infinity()));
      }
      [[fallthrough]];
    default:
      return read_number();
  }
}

}  // namespace

Result<Value> Value::from_json(std::string_view json, Arena& arena) {
  if (json.size() >= UINT32_MAX) {
    return Error(Code::kTooLarge, "JSON text of more than 4 GiB");
  }
  if (!simdjson::validate_utf8(json.data(), json.size())) {
    return Error(Code::kInvalidArgument, "JSON text is not valid UTF-8");
  }
  try {
    return Reader(json, arena).read_document();
  } catch (detail::Failure& failure) {
    return Error(failure.code, std::move(failure.message));
  }
}

}  // namespace stator::chat_template
