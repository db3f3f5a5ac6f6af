// SPDX-License-Identifier: Apache-2.0
#include "stator/api/freeform_input.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "stator/json/writer.h"
#include "stator/text/hex.h"
#include "stator/text/utf8.h"

namespace stator::api {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kUnicodeEscape = 6;  // as in \u0041

/// Where the text begins in arguments that begin with `head`: behind {"input":".
struct Head {
  enum class Is : uint8_t { kOurs, kTooShort, kForeign };
  Is is = Is::kTooShort;
  size_t end = 0;
};

Head read_head(std::string_view head) {
  constexpr std::string_view kTokens[] = {"{", "\"input\"", ":", "\""};
  size_t at = 0;
  for (const std::string_view token : kTokens) {
    at = head.find_first_not_of(kBlanks, at);
    if (at == std::string_view::npos) {
      return {};
    }
    const std::string_view there = head.substr(at, token.size());
    if (there.size() < token.size() && token.starts_with(there)) {
      return {};
    }
    if (there != token) {
      return {.is = Head::Is::kForeign};
    }
    at += token.size();
  }
  return {.is = Head::Is::kOurs, .end = at};
}

constexpr char32_t kReplacement = 0xFFFD;

/// The unit of an escape \\uXXXX; nothing if these are no hexadecimal digits.
std::optional<char32_t> unit_of(std::string_view escape) {
  char32_t unit = 0;
  for (const char digit : escape.substr(2)) {
    const uint32_t value = text::hex_value(digit);
    if (value == text::kNoHexDigit) {
      return std::nullopt;
    }
    unit = unit * 16 + value;
  }
  return unit;
}

bool is_high(char32_t unit) {
  return unit >= 0xD800 && unit < 0xDC00;
}
bool is_low(char32_t unit) {
  return unit >= 0xDC00 && unit < 0xE000;
}

char short_escape(char letter) {
  constexpr std::string_view kLetters = "nrtbf";
  constexpr std::string_view kMeanings = "\n\r\t\b\f";
  const size_t at = kLetters.find(letter);
  return at == std::string_view::npos ? letter : kMeanings[at];
}

/// Takes the escape that `body` begins with; how many bytes it has, 0: some are still to come.
/// Models write broken ones, too: these become U+FFFD.
size_t take_escape(std::string_view body, std::string& text) {
  if (body.size() < 2) {
    return 0;
  }
  if (body[1] != 'u') {
    text += short_escape(body[1]);
    return 2;
  }
  if (body.size() < kUnicodeEscape) {
    return 0;
  }
  const auto unit = unit_of(body.substr(0, kUnicodeEscape));
  if (!unit || is_low(*unit)) {
    text::append_utf8(text, kReplacement);
    return unit ? kUnicodeEscape : 2;
  }
  if (!is_high(*unit)) {
    text::append_utf8(text, *unit);
    return kUnicodeEscape;
  }
  const std::string_view rest = body.substr(kUnicodeEscape);
  const bool may_follow = rest.substr(0, 2) == std::string_view("\\u").substr(0, rest.size());
  if (may_follow && rest.size() < kUnicodeEscape) {
    return 0;
  }
  const auto second = may_follow ? unit_of(rest.substr(0, kUnicodeEscape)) : std::nullopt;
  if (!second || !is_low(*second)) {
    text::append_utf8(text, kReplacement);
    return kUnicodeEscape;
  }
  text::append_utf8(text, 0x10000 + ((*unit - 0xD800) << 10) + (*second - 0xDC00));
  return 2 * kUnicodeEscape;
}

/// What was understood of the beginning of a string's body.
struct Taken {
  size_t bytes = 0;
  bool ended = false;
};

Taken take_text(std::string_view body, std::string& text) {
  size_t at = 0;
  while (at < body.size()) {
    const size_t run = std::min(body.find_first_of("\"\\", at), body.size());
    text.append(body, at, run - at);
    at = run;
    if (at == body.size()) {
      break;
    }
    if (body[at] == '"') {
      return {.bytes = at, .ended = true};
    }
    const size_t escape = take_escape(body.substr(at), text);
    if (escape == 0) {
      break;
    }
    at += escape;
  }
  return {.bytes = at};
}

}  // namespace

std::string FreeformInput::feed(std::string_view piece) {
  if (state_ == State::kOver) {
    return {};
  }
  waiting_ += piece;
  if (state_ == State::kHead) {
    const Head head = read_head(waiting_);
    if (head.is == Head::Is::kForeign) {
      state_ = State::kForeign;
    } else if (head.is == Head::Is::kOurs) {
      state_ = State::kText;
      waiting_.erase(0, head.end);
    }
  }
  if (state_ != State::kText) {
    return {};
  }
  std::string text;
  const Taken taken = take_text(waiting_, text);
  waiting_.erase(0, taken.bytes);
  if (taken.ended) {
    state_ = State::kOver;
    waiting_.clear();
  }
  return text;
}

std::string FreeformInput::finish() {
  // In mid-text: the model was cut off, maybe within an escape, which is nothing yet.
  const bool as_it_stands = state_ == State::kHead || state_ == State::kForeign;
  state_ = State::kOver;
  std::string rest = std::exchange(waiting_, {});
  return as_it_stands ? rest : std::string();
}

std::string freeform_arguments(std::string_view input_json) {
  std::string object = R"({"input":)";
  object.append(input_json).append("}");
  std::string out;
  json::append_string(out, object);
  return out;
}

}  // namespace stator::api
