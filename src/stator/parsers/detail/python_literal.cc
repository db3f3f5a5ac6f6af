// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/python_literal.h"

#include <charconv>
#include <optional>

#include "stator/parsers/detail/byte_set.h"
#include "stator/parsers/detail/few_bytes.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/text/utf8.h"

namespace stator::parsers {
namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
constexpr ByteSet kDigits = ByteSet("").with('0', '9');
constexpr ByteSet kNameBytes =
    ByteSet("_").with('a', 'z').with('A', 'Z').with('0', '9').with(0x80, 0xFF);
constexpr bool is_name_byte(char c) {
  return kNameBytes.contains(c);
}
constexpr ByteSet kSpace(" \t\r\n");
constexpr ByteSet kStringPrefixes("rRuU");
/// What may end or change a string.
constexpr FewBytes kSingleQuoted("'\\");
constexpr FewBytes kDoubleQuoted("\"\\");
/// What counts outside of strings when the end of a call is looked for.
constexpr ByteSet kQuotesAndBrackets("'\"()[]{}");

/// One character inside a JSON string; what is none becomes U+FFFD.
void append_json_character(std::string& out, uint32_t code) {
  if (code < 0x80) {
    const char c = static_cast<char>(code);
    append_json_string_body(out, {&c, 1});
  } else {
    text::append_utf8(out, code);
  }
}

/// `,"name":`, the comma unless it is the first. Names have no byte that needs an escape.
void append_key(std::string& out, std::string_view name, bool first) {
  const size_t from = out.size();
  const size_t end = from + name.size() + (first ? 3 : 4);
  out.resize_and_overwrite(end, [&](char* bytes, size_t /*room*/) {
    char* to = bytes + from;
    if (!first) {
      *to++ = ',';
    }
    *to++ = '"';
    to += name.copy(to, name.size());
    *to++ = '"';
    *to = ':';
    return end;
  });
}

/// What a quote inside a string is that the same quote has begun.
enum class Quote : uint8_t { kEnd, kInside, kUnknown };

/// Models forget to escape: 'it's' and 'sed -n '1,5p' x' are one string each. A quote ends a string
/// only if what follows it can follow a string: a comma, a bracket, a colon or another string. Two
/// quotes end it with the second one if that one can. kUnknown: too little text.
Quote quote_at(std::string_view text, size_t at) {
  static constexpr ByteSet kFollowers(",)]}:");
  const char quote = text[at];
  const size_t next = kSpace.skip_in(text, at + 1);
  if (next == text.size()) {
    return Quote::kUnknown;
  }
  const char c = text[next];
  if (kFollowers.contains(c)) {
    return Quote::kEnd;
  }
  if (c == quote && next == at + 1) {
    const size_t after = kSpace.skip_in(text, next + 1);
    return after == text.size()               ? Quote::kUnknown
           : kFollowers.contains(text[after]) ? Quote::kInside
                                              : Quote::kEnd;
  }
  if (c == '\'' || c == '"') {
    return Quote::kEnd;
  }
  if (!kStringPrefixes.contains(c)) {
    return Quote::kInside;
  }
  if (next + 1 == text.size()) {
    return Quote::kUnknown;
  }
  return text[next + 1] == '\'' || text[next + 1] == '"' ? Quote::kEnd : Quote::kInside;
}

/// Recursive descent over complete text. Every function returns false at the first thing that is
/// no literal; nobody looks at `out` then.
class Reader {
 public:
  Reader(std::string_view text, std::string& out) : text_(text), out_(out) {}

  bool whole_value() {
    skip_space();
    return value() && at_end();
  }
  bool arguments();

 private:
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) {
      ++at_;
    }
  }
  std::string_view take_name();

  bool value();
  bool word();
  bool number();
  bool radix_number(int base);
  bool digits();
  bool sequence(char close);
  bool dict_or_set();
  bool key(size_t from);
  bool string_begins() const;
  bool string_follows();
  std::string_view take_plain_string();
  bool strings();
  bool one_string();
  bool string_body(std::string_view quotes, bool raw);
  void escape();
  bool append_code_point(char kind);
  std::optional<uint32_t> hex(size_t count);

  std::string_view text_;
  std::string& out_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
};

std::string_view Reader::take_name() {
  skip_space();
  const size_t begin = at_;
  at_ = kNameBytes.skip_in(text_, at_);
  return text_.substr(begin, at_ - begin);
}

bool Reader::arguments() {
  out_ += '{';
  bool comma = true;
  for (bool first = true; !at_end(); first = false) {
    if (!comma) {
      return false;
    }
    const std::string_view name = take_name();
    if (name.empty() || is_digit(name.front()) || !take('=')) {
      return false;
    }
    append_key(out_, name, first);
    skip_space();
    if (!value()) {
      return false;
    }
    comma = take(',');
  }
  out_ += '}';
  return true;
}

bool Reader::value() {
  if (depth_ == kMaxPythonDepth) {
    return false;
  }
  ++depth_;
  const char c = peek();
  bool ok = false;
  if (c == '[' || c == '(') {
    ++at_;
    ok = sequence(c == '[' ? ']' : ')');
  } else if (c == '{') {
    ++at_;
    ok = dict_or_set();
  } else if (is_digit(c) || c == '-' || c == '+' || c == '.') {
    ok = number();
  } else {
    ok = word();
  }
  --depth_;
  return ok;
}

/// A quote, or the prefix of one: r and u, in both cases.
bool Reader::string_begins() const {
  const bool has_prefix = kStringPrefixes.contains(peek());
  const size_t quote_at = at_ + (has_prefix && at_ < text_.size() ? 1 : 0);
  return quote_at < text_.size() && (text_[quote_at] == '\'' || text_[quote_at] == '"');
}

bool Reader::word() {
  if (string_begins()) {
    return strings();
  }
  const std::string_view name = take_name();
  if (name == "True" || name == "true") {
    out_ += "true";
  } else if (name == "False" || name == "false") {
    out_ += "false";
  } else if (name == "None" || name == "null") {
    out_ += "null";
  } else {
    return false;
  }
  return true;
}

/// Digits with underscores between them; only the digits are written.
bool Reader::digits() {
  const size_t begin = at_;
  while (is_digit(peek()) || (peek() == '_' && at_ > begin)) {
    const size_t end = kDigits.skip_in(text_, at_);
    out_.append(text_, at_, end - at_);
    at_ = end + (end == at_ ? 1 : 0);
  }
  return at_ > begin;
}

bool Reader::number() {
  bool negative = false;
  while (peek() == '-' || peek() == '+') {
    negative ^= peek() == '-';
    ++at_;
  }
  if (negative) {
    out_ += '-';
  }
  const char marker = text_.size() - at_ > 2 && peek() == '0' ? text_[at_ + 1] : '\0';
  if (marker == 'x' || marker == 'X' || marker == 'o' || marker == 'b') {
    at_ += 2;
    return radix_number(marker == 'o' ? 8 : marker == 'b' ? 2 : 16);
  }
  const size_t whole_at = out_.size();
  const bool has_whole = digits();
  if (!has_whole || out_[whole_at] == '0') {  // 007 is 7, .5 is 0.5
    out_.erase(whole_at, out_.find_first_not_of('0', whole_at) - whole_at);
    out_ += out_.size() == whole_at ? "0" : "";
  }
  bool has_fraction = false;
  if (peek() == '.') {
    ++at_;
    out_ += '.';
    has_fraction = digits();
    out_ += has_fraction ? "" : "0";
  }
  if (!has_whole && !has_fraction) {
    return false;
  }
  if (peek() == 'e' || peek() == 'E') {
    out_ += text_[at_++];
    if (peek() == '-' || peek() == '+') {
      out_ += text_[at_++];
    }
    return digits() && !is_name_byte(peek());
  }
  return !is_name_byte(peek());
}

bool Reader::radix_number(int base) {
  uint64_t value = 0;
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data() + at_, end, value, base);
  if (error != std::errc()) {
    return false;
  }
  at_ = static_cast<size_t>(stop - text_.data());
  out_ += std::to_string(value);
  return !is_name_byte(peek());
}

bool Reader::sequence(char close) {
  const size_t begin = out_.size();
  out_ += '[';
  size_t count = 0;
  bool comma = true;
  while (!take(close)) {
    if (!comma) {
      return false;
    }
    if (count > 0) {
      out_ += ',';
    }
    skip_space();
    if (!value()) {
      return false;
    }
    ++count;
    comma = take(',');
    if (close == ')' && count == 1 && !comma && take(close)) {
      out_.erase(begin, 1);  // (1) is 1, not a tuple
      return true;
    }
  }
  out_ += ']';
  return true;
}

bool Reader::dict_or_set() {
  const size_t begin = out_.size();
  out_ += '{';
  bool is_set = false;
  bool comma = true;
  for (size_t count = 0; !take('}'); ++count) {
    if (!comma) {
      return false;
    }
    if (count > 0) {
      out_ += ',';
    }
    skip_space();
    const size_t key_at = out_.size();
    if (!value()) {
      return false;
    }
    const bool has_value = take(':');
    if (count == 0) {
      is_set = !has_value;
      out_[begin] = is_set ? '[' : '{';
    }
    if (has_value == is_set) {
      return false;
    }
    if (has_value) {
      if (!key(key_at)) {
        return false;
      }
      skip_space();
      if (!value()) {
        return false;
      }
    }
    comma = take(',');
  }
  out_ += is_set ? ']' : '}';
  return true;
}

/// Makes a key of the value that was written from `from` on. JSON knows text keys only: 1 becomes
/// "1". Lists are no keys in Python either.
bool Reader::key(size_t from) {
  const char first = out_[from];
  if (first == '[' || first == '{') {
    return false;
  }
  if (first != '"') {
    out_.insert(from, 1, '"');  // a number or a word: nothing to escape
    out_ += '"';
  }
  out_ += ':';
  return true;
}

/// "a" 'b' is one string.
bool Reader::strings() {
  const std::string_view plain = take_plain_string();
  const bool is_all = plain.data() != nullptr && !string_follows();
  if (is_all) {
    append_json_string(out_, plain);
    return true;
  }
  out_ += '"';
  append_json_string_body(out_, plain);
  do {
    if (!one_string()) {
      return false;
    }
  } while (string_follows());
  out_ += '"';
  return true;
}

/// Whether another string stands behind white space, which is then skipped.
bool Reader::string_follows() {
  const size_t before = at_;
  skip_space();
  if (string_begins()) {
    return true;
  }
  at_ = before;
  return false;
}

/// The common case, without a copy: one quote at each end, and no backslash. Else nothing is taken
/// and the result's data is null.
std::string_view Reader::take_plain_string() {
  const std::string_view rest = text_.substr(at_);
  const char quote = rest[0];
  if (quote != '\'' && quote != '"') {
    return {};
  }
  const size_t end = (quote == '"' ? kDoubleQuoted : kSingleQuoted).find_in(rest, 1);
  const bool is_plain = end < rest.size() && rest[end] == quote &&
                        (end + 1 == rest.size() || rest[end + 1] != quote) &&
                        quote_at(rest, end) != Quote::kInside;
  if (!is_plain) {
    return {};
  }
  at_ += end + 1;
  return rest.substr(1, end - 1);
}

bool Reader::one_string() {
  const std::string_view prefix = take_name();
  const bool raw = prefix == "r" || prefix == "R";
  if (!raw && !prefix.empty() && prefix != "u" && prefix != "U") {
    return false;
  }
  const char quote = peek();
  if (quote != '\'' && quote != '"') {
    return false;
  }
  const std::string_view rest = text_.substr(at_);
  const size_t count = rest.size() >= 3 && rest[1] == quote && rest[2] == quote ? 3 : 1;
  const std::string_view quotes = text_.substr(at_, count);
  at_ += count;
  return string_body(quotes, raw);
}

/// Everything is written as the body of a JSON string at once.
bool Reader::string_body(std::string_view quotes, bool raw) {
  const FewBytes& stops = quotes[0] == '"' ? kDoubleQuoted : kSingleQuoted;
  while (at_ < text_.size()) {
    const size_t stop = stops.find_in(text_, at_);
    if (stop > at_) {
      append_json_string_body(out_, text_.substr(at_, stop - at_));
      at_ = stop;
    }
    if (at_ == text_.size()) {
      return false;
    }
    const bool is_backslash = text_[at_] == '\\';
    const bool is_quote = !is_backslash && text_.substr(at_).starts_with(quotes);
    if (is_quote && (quotes.size() > 1 || quote_at(text_, at_) != Quote::kInside)) {
      at_ += quotes.size();
      return true;
    }
    if (is_backslash && !raw && at_ + 1 < text_.size()) {
      ++at_;
      escape();
    } else {
      const size_t length = is_backslash && at_ + 1 < text_.size() ? 2 : 1;
      append_json_string_body(out_, text_.substr(at_, length));
      at_ += length;
    }
  }
  return false;
}

/// What Python's escapes of one letter are in JSON; null: it is none of them.
constexpr std::string_view spell_escape(char letter) {
  switch (letter) {
    case '\n':
      return "";  // a backslash at the end of a line continues it
    case '\\':
      return "\\\\";
    case '\'':
      return "'";
    case '"':
      return "\\\"";
    case 'a':
      return "\\u0007";
    case 'b':
      return "\\u0008";
    case 'f':
      return "\\u000c";
    case 'n':
      return "\\n";
    case 'r':
      return "\\r";
    case 't':
      return "\\t";
    case 'v':
      return "\\u000b";
    default:
      return {};
  }
}

/// `at_` is behind the backslash, and a byte follows. Escapes that do not exist keep their
/// backslash, as in Python.
void Reader::escape() {
  const char c = text_[at_++];
  if (const std::string_view spelling = spell_escape(c); spelling.data() != nullptr) {
    out_ += spelling;
    return;
  }
  if (c >= '0' && c <= '7') {
    uint32_t code = static_cast<uint32_t>(c - '0');
    for (int more = 0; more < 2 && peek() >= '0' && peek() <= '7'; ++more) {
      code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    append_json_character(out_, code);
    return;
  }
  if ((c == 'x' || c == 'u' || c == 'U') && append_code_point(c)) {
    return;
  }
  out_ += "\\\\";
  append_json_string_body(out_, {&c, 1});
}

/// Behind \x, \u or \U. False if the digits are missing: a path of Windows, most likely.
bool Reader::append_code_point(char kind) {
  std::optional<uint32_t> code = hex(kind == 'x' ? 2 : kind == 'u' ? 4 : 8);
  if (!code.has_value()) {
    return false;
  }
  const size_t before = at_;
  // Models write JSON's surrogate pairs, which Python would not join.
  if (*code >= 0xD800 && *code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
    at_ += 2;
    const std::optional<uint32_t> low = hex(4);
    if (low.has_value() && *low >= 0xDC00 && *low < 0xE000) {
      code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
    } else {
      at_ = before;
    }
  }
  append_json_character(out_, *code);
  return true;
}

std::optional<uint32_t> Reader::hex(size_t count) {
  if (text_.size() - at_ < count) {
    return std::nullopt;
  }
  uint32_t code = 0;
  for (const char c : text_.substr(at_, count)) {
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      code = code * 16 + static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      code = code * 16 + static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  at_ += count;
  return code;
}

template <typename Read>
bool append_or_restore(std::string& out, std::string_view text, Read read) {
  const size_t before = out.size();
  Reader reader(text, out);
  if (read(reader)) {
    return true;
  }
  out.resize(before);
  return false;
}

}  // namespace

bool append_python_value(std::string& out, std::string_view text) {
  return append_or_restore(out, text, [](Reader& reader) { return reader.whole_value(); });
}

bool append_python_arguments(std::string& out, std::string_view text) {
  return append_or_restore(out, text, [](Reader& reader) { return reader.arguments(); });
}

size_t PythonCallScanner::find_end(std::string_view text, Window::Ending ending) {
  while (at_ < text.size()) {
    if (quote_ != '\0') {
      const size_t before = at_;
      at_ = skip_string(text, ending);
      if (quote_ != '\0' && at_ == before) {
        return std::string_view::npos;
      }
      continue;
    }
    at_ = kQuotesAndBrackets.find_in(text, at_);
    if (at_ == text.size()) {
      return std::string_view::npos;
    }
    const char c = text[at_];
    if (c == '\'' || c == '"') {
      if (text.size() - at_ < 3 && ending == Window::Ending::kNo) {
        return std::string_view::npos;  // may be the first of three
      }
      quote_ = c;
      triple_ = text.size() - at_ >= 3 && text[at_ + 1] == c && text[at_ + 2] == c;
      at_ += triple_ ? 3 : 1;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') {
      ++depth_;
    } else if (depth_ == 0) {
      return at_;
    } else {
      --depth_;
    }
    ++at_;
  }
  return std::string_view::npos;
}

/// From inside a string to behind its end, or to where more text is needed to go on.
size_t PythonCallScanner::skip_string(std::string_view text, Window::Ending ending) {
  const FewBytes& stops = quote_ == '"' ? kDoubleQuoted : kSingleQuoted;
  size_t at = at_;
  while (at < text.size()) {
    at = stops.find_in(text, at);
    if (at == text.size()) {
      return at;
    }
    if (text[at] == '\\') {
      if (at + 1 == text.size()) {
        return at;
      }
      at += 2;
    } else if (!triple_) {
      const Quote kind = quote_at(text, at);
      if (kind == Quote::kUnknown && ending == Window::Ending::kNo) {
        return at;
      }
      if (kind != Quote::kInside) {
        quote_ = '\0';
        return at + 1;
      }
      ++at;
    } else if (text.size() - at < 3) {
      const bool may_close = text.find_first_not_of(quote_, at) == std::string_view::npos;
      if (may_close) {
        return at;
      }
      ++at;
    } else if (text[at + 1] == quote_ && text[at + 2] == quote_) {
      quote_ = '\0';
      return at + 3;
    } else {
      ++at;
    }
  }
  return at;
}

}  // namespace stator::parsers
