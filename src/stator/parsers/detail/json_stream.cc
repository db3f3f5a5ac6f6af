// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/json_stream.h"

#include <algorithm>
#include <array>
#include <bit>

#include "stator/parsers/detail/byte_set.h"
#include "stator/parsers/detail/window.h"
#include "stator/text/hex.h"
#include "stator/text/utf8.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stator::parsers {
namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
constexpr bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20;
}
/// Bytes of a string that are not copied without a look.
constexpr ByteSet kLookedAt = ByteSet("\"\\").with(0, 0x1F);

constexpr std::array<std::string_view, 3> kWords = {"true", "false", "null"};
constexpr std::array<std::string_view, 3> kPythonWords = {"True", "False", "None"};
/// What may stand behind a backslash, but for u.
constexpr std::string_view kEscapes = "\"\\/bfnrt";

/// Length of the longest prefix that a JSON string can hold as it is; 16 bytes at a time.
size_t plain_prefix(std::string_view text) {
  size_t at = 0;
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i last_control = _mm_set1_epi8(0x1F);
  for (; at + 16 <= text.size(); at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    const __m128i special =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                     _mm_cmpeq_epi8(_mm_min_epu8(bytes, last_control), bytes));
    if (const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(special)); mask != 0) {
      return at + static_cast<size_t>(std::countr_zero(mask));
    }
  }
#endif
  return kLookedAt.find_in(text, at);
}

void append_escaped_control(std::string& out, char c) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  switch (c) {
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      out += "\\u00";
      out += kHexDigits[static_cast<unsigned char>(c) >> 4];
      out += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
}

}  // namespace

size_t JsonStream::read(std::string_view text, std::string* out) {
  Run run{.text = text, .out = out};
  while (run.at < text.size() && status_ == Status::kMore) {
    switch (expect_) {
      case Expect::kString:
        string(run);
        break;
      case Expect::kEscape:
        escape(run);
        break;
      case Expect::kHex:
        hex(run);
        break;
      case Expect::kNumber:
        number(run);
        break;
      case Expect::kWord:
        word(run);
        break;
      default:
        structure(run);
    }
  }
  run.leave_out(0);
  return run.at;
}

void JsonStream::end(std::string& out) {
  if (status_ != Status::kMore || depth_ > 0) {
    return;
  }
  if (expect_ == Expect::kNumber && number_may_end()) {
    value_ends();
  } else if (expect_ == Expect::kWord) {
    if (const std::string_view spelling = finish_word(); !spelling.empty()) {
      out += spelling;
      value_ends();
    }
  }
}

bool JsonStream::closes(char c) const {
  const bool is_object = c == '}';
  if (!is_object && c != ']') {
    return false;
  }
  if (expect_ == Expect::kNext) {
    return depth_ > 0 && in_object() == is_object;
  }
  return expect_ == (is_object ? Expect::kFirstKey : Expect::kFirstElement);
}

/// Outside of strings, numbers and words. Consumes nothing where the value is malformed.
void JsonStream::structure(Run& run) {
  const char c = run.text[run.at];
  if (is_space(c)) {
    const size_t space = leading_space(run.text.substr(run.at));
    if (depth_ > 0) {
      run.at += space;
    } else {
      run.leave_out(space);
    }
    return;
  }
  if (closes(c)) {
    ++run.at;
    --depth_;
    value_ends();
    return;
  }
  bool sound = false;
  switch (expect_) {
    case Expect::kNext:
      sound = c == ',' && depth_ > 0;
      expect_ = sound && in_object() ? Expect::kKey : Expect::kValue;
      break;
    case Expect::kColon:
      sound = c == ':';
      expect_ = Expect::kValue;
      break;
    case Expect::kFirstKey:
    case Expect::kKey:
      sound = c == '"';
      string_is_key_ = true;
      expect_ = Expect::kString;
      break;
    default:
      value_begins(run);
      return;
  }
  if (!sound) {
    fail();
    return;
  }
  ++run.at;
  if (c != '"' && run.at < run.text.size() && run.text[run.at] == ' ') {
    ++run.at;  // as nearly everyone writes behind a colon or a comma
  }
}

void JsonStream::value_begins(Run& run) {
  const char c = run.text[run.at];
  if (is_letter(c)) {
    word_begins(run);
    return;
  }
  bool sound = true;
  if (c == '"') {
    string_is_key_ = false;
    expect_ = Expect::kString;
  } else if (c == '{' || c == '[') {
    sound = open(c == '{');
  } else if (c == '-' || is_digit(c)) {
    number_ = c == '-' ? Number::kSign : (c == '0' ? Number::kZero : Number::kInteger);
    expect_ = Expect::kNumber;
  } else {
    sound = false;
  }
  if (sound) {
    ++run.at;
  } else {
    fail();
  }
}

/// JSON's own words go out as they are if all of one is there; other words wait for their end.
void JsonStream::word_begins(Run& run) {
  const std::string_view rest = run.text.substr(run.at);
  for (const std::string_view known : kWords) {
    if (rest.size() > known.size() && rest.starts_with(known) && !is_letter(rest[known.size()])) {
      run.at += known.size();
      value_ends();
      return;
    }
  }
  run.leave_out(0);
  word_length_ = 0;
  expect_ = Expect::kWord;
}

void JsonStream::word(Run& run) {
  while (run.at < run.text.size() && is_letter(run.text[run.at]) && word_length_ < word_.size()) {
    word_[word_length_++] = run.text[run.at++];
  }
  run.from = run.at;
  if (run.at == run.text.size()) {
    return;
  }
  const std::string_view spelling = finish_word();
  run.write(spelling);
  spelling.empty() ? fail() : value_ends();
}

void JsonStream::number(Run& run) {
  while (run.at < run.text.size() && number_goes_on(run.text[run.at])) {
    ++run.at;
  }
  if (run.at < run.text.size()) {
    number_may_end() ? value_ends() : fail();
  }
}

void JsonStream::hex(Run& run) {
  if (!is_hex(run.text[run.at])) {
    fail();
    return;
  }
  ++run.at;
  expect_ = --hex_left_ == 0 ? Expect::kString : Expect::kHex;
}

bool JsonStream::open(bool is_object) {
  if (depth_ == kMaxJsonDepth) {
    return false;
  }
  const uint64_t bit = uint64_t{1} << (depth_ % 64);
  uint64_t& word = stack_[depth_ / 64];
  word = is_object ? word | bit : word & ~bit;
  ++depth_;
  expect_ = is_object ? Expect::kFirstKey : Expect::kFirstElement;
  return true;
}

void JsonStream::value_ends() {
  expect_ = Expect::kNext;
  if (depth_ == 0) {
    status_ = Status::kDone;
  }
}

void JsonStream::string(Run& run) {
  const std::string_view rest = run.text.substr(run.at);
  const size_t plain = plain_prefix(rest);
  run.at += plain;
  if (plain == rest.size()) {
    return;
  }
  const char c = rest[plain];
  if (c == '"') {
    ++run.at;
    if (string_is_key_) {
      expect_ = Expect::kColon;
    } else {
      value_ends();
    }
  } else if (c != '\\') {
    run.leave_out(1);
    if (run.out != nullptr) {
      append_escaped_control(*run.out, c);
    }
    repaired_ = true;
  } else if (plain + 1 < rest.size() && kEscapes.contains(rest[plain + 1])) {
    run.at += 2;
  } else {  // written with what follows it, which may not be an escape
    run.leave_out(1);
    expect_ = Expect::kEscape;
  }
}

void JsonStream::escape(Run& run) {
  const char c = run.text[run.at];
  expect_ = Expect::kString;
  run.leave_out(1);
  if (c == 'u' || kEscapes.contains(c)) {
    run.write("\\");
    --run.from;  // c goes out as it is
    hex_left_ = 4;
    expect_ = c == 'u' ? Expect::kHex : Expect::kString;
    return;
  }
  repaired_ = true;
  if (c != '\'') {      // JavaScript's and Python's \' is a mere quote
    run.write("\\\\");  // a backslash that was meant as one: "\d", "\ " or before a line break
  }
  if (!is_control(c)) {
    --run.from;
  } else if (run.out != nullptr) {
    append_escaped_control(*run.out, c);
  }
}

bool JsonStream::number_goes_on(char c) {
  const bool digit = is_digit(c);
  const auto to = [this](Number next) {
    number_ = next;
    return true;
  };
  switch (number_) {
    case Number::kSign:
      return digit && to(c == '0' ? Number::kZero : Number::kInteger);
    case Number::kZero:
    case Number::kInteger:
      if (digit) {
        return number_ == Number::kInteger;
      }
      return c == '.' ? to(Number::kDot) : (c == 'e' || c == 'E') && to(Number::kE);
    case Number::kDot:
      return digit && to(Number::kFraction);
    case Number::kFraction:
      return digit || ((c == 'e' || c == 'E') && to(Number::kE));
    case Number::kE:
      return digit ? to(Number::kExponent) : (c == '+' || c == '-') && to(Number::kESign);
    case Number::kESign:
      return digit && to(Number::kExponent);
    case Number::kExponent:
      return digit;
  }
  return false;
}

bool JsonStream::number_may_end() const {
  return number_ == Number::kZero || number_ == Number::kInteger || number_ == Number::kFraction ||
         number_ == Number::kExponent;
}

/// What the word that has ended is in JSON; empty if it is none.
std::string_view JsonStream::finish_word() {
  const std::string_view word(word_.data(), word_length_);
  for (size_t i = 0; i < kWords.size(); ++i) {
    if (word == kWords[i] || word == kPythonWords[i]) {
      repaired_ = repaired_ || word == kPythonWords[i];
      return kWords[i];
    }
  }
  return {};
}

ObjectStart object_start(std::string_view text) {
  const size_t first = 1 + leading_space(text.substr(1));
  if (first == text.size() && first <= kMaxHeldSpaceBytes) {
    return ObjectStart::kUndecided;
  }
  const bool is_object = first < text.size() && (text[first] == '"' || text[first] == '}');
  return is_object ? ObjectStart::kObject : ObjectStart::kOther;
}

bool is_json(std::string_view text) {
  text = trim(text);
  JsonStream stream;
  const size_t used = stream.skip(text);
  std::string last_word;
  stream.end(last_word);
  return used == text.size() && stream.status() == JsonStream::Status::kDone && !stream.repaired();
}

void append_json_string(std::string& out, std::string_view text) {
  if (plain_prefix(text) == text.size()) {  // nearly always: written in one go
    const size_t from = out.size();
    const size_t end = from + text.size() + 2;
    out.resize_and_overwrite(end, [&](char* bytes, size_t /*room*/) {
      bytes[from] = '"';
      text.copy(bytes + from + 1, text.size());
      bytes[end - 1] = '"';
      return end;
    });
    return;
  }
  out += '"';
  append_json_string_body(out, text);
  out += '"';
}

void append_json_string_body(std::string& out, std::string_view text) {
  for (size_t plain = plain_prefix(text);; plain = plain_prefix(text)) {
    out.append(text.substr(0, plain));
    if (plain == text.size()) {
      return;
    }
    const char c = text[plain];
    if (is_control(c)) {
      append_escaped_control(out, c);
    } else {
      out += '\\';
      out += c;
    }
    text.remove_prefix(plain + 1);
  }
}

namespace {

/// The four hex digits of \uXXXX at `at` (the backslash), or nothing there: UINT32_MAX.
uint32_t read_unicode_escape(std::string_view body, size_t at) {
  if (at + 6 > body.size() || body[at] != '\\' || body[at + 1] != 'u') {
    return UINT32_MAX;
  }
  uint32_t code = 0;
  for (const char c : body.substr(at + 2, 4)) {
    const uint32_t digit = text::hex_value(c);
    if (digit == text::kNoHexDigit) {
      return UINT32_MAX;
    }
    code = code * 16 + digit;
  }
  return code;
}

/// Decodes the escape at `at`; returns its length, 0 if it is broken.
size_t append_escape(std::string& out, std::string_view body, size_t at) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (at + 1 >= body.size()) {
    return 0;
  }
  if (const size_t index = kLetters.find(body[at + 1]); index != std::string_view::npos) {
    out += kMeanings[index];
    return 2;
  }
  const uint32_t code = read_unicode_escape(body, at);
  if (code == UINT32_MAX) {
    return 0;
  }
  if (!text::is_high_surrogate(code)) {
    text::append_utf8(out, code);
    return 6;
  }
  const uint32_t low = read_unicode_escape(body, at + 6);
  if (low == UINT32_MAX || !text::is_low_surrogate(low)) {
    out += text::kReplacementCharacter;
    return 6;
  }
  text::append_utf8(out, text::join_surrogates(code, low));
  return 12;
}

}  // namespace

size_t escape_length(std::string_view body) {
  constexpr size_t kUnicodeBytes = 6;
  if (body.size() < 2) {
    return 0;
  }
  if (body[1] != 'u') {
    return std::string_view("\"\\/bfnrt").contains(body[1]) ? 2 : 1;
  }
  const auto digits = body.substr(2, 4);
  if (!std::ranges::all_of(digits, is_hex)) {
    return 1;
  }
  if (digits.size() < 4) {
    return 0;
  }
  if (!text::is_high_surrogate(read_unicode_escape(body, 0))) {
    return kUnicodeBytes;
  }
  const std::string_view low = body.substr(kUnicodeBytes, kUnicodeBytes);
  const bool may_be_low = std::string_view("\\u").starts_with(low.substr(0, 2)) &&
                          (low.size() < 3 || std::ranges::all_of(low.substr(2), is_hex));
  if (low.size() < kUnicodeBytes) {
    return may_be_low ? 0 : kUnicodeBytes;
  }
  const uint32_t code = read_unicode_escape(low, 0);
  return may_be_low && text::is_low_surrogate(code) ? 2 * kUnicodeBytes : kUnicodeBytes;
}

bool append_unescaped(std::string& out, std::string_view body) {
  size_t at = 0;
  while (at < body.size()) {
    const size_t escape = std::min(body.find('\\', at), body.size());
    out.append(body.substr(at, escape - at));
    at = escape;
    if (at == body.size()) {
      break;
    }
    const size_t length_bytes = append_escape(out, body, at);
    if (length_bytes == 0) {
      return false;
    }
    at += length_bytes;
  }
  return true;
}

}  // namespace stator::parsers
