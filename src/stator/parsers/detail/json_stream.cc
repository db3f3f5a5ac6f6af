// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/json_stream.h"

#include <algorithm>
#include <bit>

#include "stator/parsers/detail/window.h"

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
/// Bytes of a string that are copied without a look.
constexpr bool is_plain(char c) {
  return c != '"' && c != '\\' && !is_control(c);
}

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
  while (at < text.size() && is_plain(text[at])) {
    ++at;
  }
  return at;
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

size_t JsonStream::feed(std::string_view text, std::string& out) {
  size_t at = 0;
  while (at < text.size() && status_ == Status::kMore) {
    const size_t taken = expect_ == Expect::kString ? string_run(text.substr(at), out)
                                                    : structural(text.substr(at), out);
    at += taken;
    if (taken == 0 && status_ == Status::kMore && expect_ != Expect::kNext) {
      break;
    }
  }
  return at;
}

void JsonStream::end(std::string& out) {
  if (status_ != Status::kMore || depth_ > 0) {
    return;
  }
  if (expect_ == Expect::kNumber && number_may_end()) {
    value_ends();
  } else if (expect_ == Expect::kWord && finish_word(out)) {
    value_ends();
  }
}

/// What stands outside the plain part of strings. Returns how many bytes were consumed; 0 if the
/// first ended a number or word and must be looked at again, or was not consumed at all.
size_t JsonStream::structural(std::string_view text, std::string& out) {
  const char c = text[0];
  switch (expect_) {
    case Expect::kNumber:
      if (number_goes_on(c)) {
        out += c;
        return 1;
      }
      number_may_end() ? value_ends() : fail();
      return 0;
    case Expect::kWord:
      if (is_letter(c) && word_length_ < word_.size()) {
        word_[word_length_++] = c;
        return 1;
      }
      finish_word(out) ? value_ends() : fail();
      return 0;
    case Expect::kEscape:
      escape(c, out);
      return 1;
    case Expect::kHex:
      if (!is_hex(c)) {
        fail();
        return 0;
      }
      out += c;
      expect_ = --hex_left_ == 0 ? Expect::kString : Expect::kHex;
      return 1;
    default:
      break;
  }
  if (is_space(c)) {
    const size_t space = leading_space(text);
    if (depth_ > 0) {
      out.append(text.substr(0, space));
    }
    return space;
  }
  if (!value_begins(c, out)) {
    fail();
    return 0;
  }
  return 1;
}

/// A byte between tokens. False if it cannot stand here.
bool JsonStream::value_begins(char c, std::string& out) {
  const bool closes = (c == '}' && (expect_ == Expect::kFirstKey ||
                                    (expect_ == Expect::kNext && depth_ > 0 && in_object()))) ||
                      (c == ']' && (expect_ == Expect::kFirstElement ||
                                    (expect_ == Expect::kNext && depth_ > 0 && !in_object())));
  if (closes) {
    out += c;
    --depth_;
    value_ends();
    return true;
  }
  switch (expect_) {
    case Expect::kNext:
      if (c != ',' || depth_ == 0) {
        return false;
      }
      out += c;
      expect_ = in_object() ? Expect::kKey : Expect::kValue;
      return true;
    case Expect::kColon:
      if (c != ':') {
        return false;
      }
      out += c;
      expect_ = Expect::kValue;
      return true;
    case Expect::kFirstKey:
    case Expect::kKey:
      if (c != '"') {
        return false;
      }
      out += c;
      string_is_key_ = true;
      expect_ = Expect::kString;
      return true;
    default:
      break;
  }
  if (c == '{' || c == '[') {
    out += c;
    return open(c == '{');
  }
  if (c == '"') {
    out += c;
    string_is_key_ = false;
    expect_ = Expect::kString;
    return true;
  }
  if (c == '-' || is_digit(c)) {
    out += c;
    number_ = c == '-' ? Number::kSign : (c == '0' ? Number::kZero : Number::kInteger);
    expect_ = Expect::kNumber;
    return true;
  }
  if (is_letter(c)) {
    word_[0] = c;
    word_length_ = 1;
    expect_ = Expect::kWord;
    return true;
  }
  return false;
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

size_t JsonStream::string_run(std::string_view text, std::string& out) {
  const size_t plain = plain_prefix(text);
  out.append(text.substr(0, plain));
  if (plain == text.size()) {
    return plain;
  }
  string_byte(text[plain], out);
  return plain + 1;
}

void JsonStream::string_byte(char c, std::string& out) {
  if (c == '\\') {  // written with what follows it, which may not be an escape
    expect_ = Expect::kEscape;
    return;
  }
  if (c != '"') {
    append_escaped_control(out, c);
    repaired_ = true;
    return;
  }
  out += c;
  if (string_is_key_) {
    expect_ = Expect::kColon;
  } else {
    value_ends();
  }
}

void JsonStream::escape(char c, std::string& out) {
  expect_ = Expect::kString;
  switch (c) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
      out += '\\';
      out += c;
      return;
    case 'u':
      out += "\\u";
      hex_left_ = 4;
      expect_ = Expect::kHex;
      return;
    case '\'':  // JavaScript's and Python's
      out += c;
      break;
    default:  // a backslash that was meant as one: "\d", "\ " or before a line break
      out += "\\\\";
      if (is_control(c)) {
        append_escaped_control(out, c);
      } else {
        out += c;
      }
  }
  repaired_ = true;
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

bool JsonStream::finish_word(std::string& out) {
  const std::string_view word(word_.data(), word_length_);
  if (word == "true" || word == "false" || word == "null") {
    out += word;
    return true;
  }
  if (word != "True" && word != "False" && word != "None") {
    return false;
  }
  out += word == "True" ? "true" : (word == "False" ? "false" : "null");
  repaired_ = true;
  return true;
}

bool is_json(std::string_view text) {
  text = trim(text);
  JsonStream stream;
  std::string copy;
  const size_t used = stream.feed(text, copy);
  stream.end(copy);
  return used == text.size() && stream.status() == JsonStream::Status::kDone && !stream.repaired();
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t at = 0;
  while (at < text.size()) {
    const size_t plain = at + plain_prefix(text.substr(at));
    out.append(text.substr(at, plain - at));
    if (plain == text.size()) {
      break;
    }
    const char c = text[plain];
    if (is_control(c)) {
      append_escaped_control(out, c);
    } else {
      out += '\\';
      out += c;
    }
    at = plain + 1;
  }
  out += '"';
}

namespace {

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

/// The four hex digits of \uXXXX at `at` (the backslash), or nothing there: UINT32_MAX.
uint32_t read_unicode_escape(std::string_view body, size_t at) {
  if (at + 6 > body.size() || body[at] != '\\' || body[at + 1] != 'u') {
    return UINT32_MAX;
  }
  uint32_t code = 0;
  for (const char c : body.substr(at + 2, 4)) {
    if (!is_hex(c)) {
      return UINT32_MAX;
    }
    const auto digit =
        static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);  // to lower case
    code = code * 16 + digit;
  }
  return code;
}

constexpr uint32_t kReplacement = 0xFFFD;
constexpr bool is_high_surrogate(uint32_t code) {
  return code >= 0xD800 && code < 0xDC00;
}
constexpr bool is_low_surrogate(uint32_t code) {
  return code >= 0xDC00 && code < 0xE000;
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
  if (!is_high_surrogate(code)) {
    append_utf8(out, is_low_surrogate(code) ? kReplacement : code);
    return 6;
  }
  const uint32_t low = read_unicode_escape(body, at + 6);
  if (low == UINT32_MAX || !is_low_surrogate(low)) {
    append_utf8(out, kReplacement);
    return 6;
  }
  append_utf8(out, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00));
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
  if (!is_high_surrogate(read_unicode_escape(body, 0))) {
    return kUnicodeBytes;
  }
  const std::string_view low = body.substr(kUnicodeBytes, kUnicodeBytes);
  const bool may_be_low = std::string_view("\\u").starts_with(low.substr(0, 2)) &&
                          (low.size() < 3 || std::ranges::all_of(low.substr(2), is_hex));
  if (low.size() < kUnicodeBytes) {
    return may_be_low ? 0 : kUnicodeBytes;
  }
  const uint32_t code = read_unicode_escape(low, 0);
  return may_be_low && is_low_surrogate(code) ? 2 * kUnicodeBytes : kUnicodeBytes;
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
