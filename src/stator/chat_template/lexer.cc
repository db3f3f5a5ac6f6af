// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/utf8.h"

namespace stator::chat_template::detail {
namespace {

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_ascii_digit(c) ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  Lexer(std::string_view source, Arena& arena) : source_(source), arena_(arena) {}
  std::vector<Token> run();

 private:
  /// A tag opener found in the text: "{%", "{{" or "{#", or a whole "{% raw %}".
  struct Opener {
    size_t begin;
    size_t end;  // past the sign, or past the whole raw tag
    char sign;   // '-', '+' or 0
    char type;   // '%', '{', '#', 'r'
  };
  std::optional<Opener> find_opener(size_t from) const;
  std::optional<size_t> match_raw(size_t at) const;
  void lex_tag(TokenType end_type);
  bool lex_tag_end(TokenType end_type);
  void lex_comment(uint32_t line);
  void lex_raw(uint32_t line);
  void lex_token();
  void lex_string();
  void lex_number();
  void lex_operator();
  size_t match_float(size_t at) const;
  size_t match_integer(size_t at) const;

  std::string_view stripped(std::string_view text, const Opener& opener) const;
  void push_data(std::string_view text) {
    if (!text.empty()) {
      tokens_.push_back({TokenType::kData, line_, text});
    }
  }
  /// Moves to `end`, counting lines and remembering whether it stands at a line start.
  void advance(size_t end) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                              source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    line_starting_ = end > at_ && source_[end - 1] == '\n';
    at_ = end;
  }
  size_t skip_space(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!is_space(next_code_point(source_, next))) {
        break;
      }
      at = next;
    }
    return at;
  }
  bool starts_with(size_t at, std::string_view text) const {
    return source_.substr(std::min(at, source_.size()), text.size()) == text;
  }
  /// End of "-%}", "+%}" or "%}" with the white space each takes, at `at`; 0 when not there.
  size_t match_close(size_t at, std::string_view close, bool is_block) const;

  std::string_view source_;
  Arena& arena_;
  std::vector<Token> tokens_;
  std::string brackets_;  // closers still awaited
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
};

std::optional<size_t> Lexer::match_raw(size_t at) const {
  at += 2;
  if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) {
    ++at;
  }
  at = skip_space(at);
  if (!starts_with(at, "raw")) {
    return std::nullopt;
  }
  at = skip_space(at + 3);
  if (starts_with(at, "-%}")) {
    return skip_space(at + 3);
  }
  if (starts_with(at, "%}")) {
    return at + 2;
  }
  return std::nullopt;
}

std::optional<Lexer::Opener> Lexer::find_opener(size_t from) const {
  for (size_t at = source_.find('{', from); at != std::string_view::npos && at + 1 < source_.size();
       at = source_.find('{', at + 1)) {
    const char type = source_[at + 1];
    if (type != '%' && type != '{' && type != '#') {
      continue;
    }
    Opener opener{at, at + 2, 0, type};
    if (opener.end < source_.size() && (source_[opener.end] == '-' || source_[opener.end] == '+')) {
      opener.sign = source_[opener.end++];
    }
    if (type == '%') {
      if (const auto raw_end = match_raw(at)) {
        opener.type = 'r';
        opener.end = *raw_end;
      }
    }
    return opener;
  }
  return std::nullopt;
}

std::string_view Lexer::stripped(std::string_view text, const Opener& opener) const {
  if (opener.sign == '-') {
    return strip(text, Side::kRight);
  }
  if (opener.sign == '+' || opener.type == '{') {
    return text;
  }
  const size_t line_start = text.rfind('\n') + 1;
  const std::string_view tail = text.substr(line_start);
  if ((line_start > 0 || line_starting_) && strip(tail, Side::kBoth).empty()) {
    return text.substr(0, line_start);
  }
  return text;
}

size_t Lexer::match_close(size_t at, std::string_view close, bool is_block) const {
  if (starts_with(at, close)) {
    const size_t end = at + close.size();
    return is_block && starts_with(end, "\n") ? end + 1 : end;
  }
  if (at < source_.size() && starts_with(at + 1, close)) {
    if (source_[at] == '-') {
      return skip_space(at + 1 + close.size());
    }
    if (source_[at] == '+' && is_block) {
      return at + 1 + close.size();
    }
  }
  return 0;
}

std::vector<Token> Lexer::run() {
  while (at_ < source_.size()) {
    const auto opener = find_opener(at_);
    if (!opener) {
      push_data(source_.substr(at_));
      advance(source_.size());
      break;
    }
    push_data(stripped(source_.substr(at_, opener->begin - at_), *opener));
    advance(opener->end);
    const uint32_t line = line_;
    switch (opener->type) {
      case '%':
        tokens_.push_back({TokenType::kBlockBegin, line, "{%"});
        lex_tag(TokenType::kBlockEnd);
        break;
      case '{':
        tokens_.push_back({TokenType::kVariableBegin, line, "{{"});
        lex_tag(TokenType::kVariableEnd);
        break;
      case '#':
        lex_comment(line);
        break;
      default:
        lex_raw(line);
    }
  }
  tokens_.push_back({TokenType::kEnd, line_, "end of template"});
  return std::move(tokens_);
}

void Lexer::lex_comment(uint32_t line) {
  for (size_t at = at_; at < source_.size(); ++at) {
    const char c = source_[at];
    if (c != '#' && c != '-' && c != '+') {
      continue;
    }
    if (const size_t end = match_close(at, "#}", true); end != 0) {
      advance(end);
      return;
    }
  }
  fail_at(line, "a comment has no '#}'");
}

void Lexer::lex_raw(uint32_t line) {
  for (size_t at = source_.find("{%", at_); at != std::string_view::npos;
       at = source_.find("{%", at + 1)) {
    Opener opener{at, at + 2, 0, '%'};
    if (starts_with(opener.end, "-") || starts_with(opener.end, "+")) {
      opener.sign = source_[opener.end++];
    }
    const size_t word = skip_space(opener.end);
    if (!starts_with(word, "endraw")) {
      continue;
    }
    const size_t end = match_close(skip_space(word + 6), "%}", true);
    if (end == 0) {
      continue;
    }
    push_data(stripped(source_.substr(at_, at - at_), opener));
    advance(end);
    return;
  }
  fail_at(line, "'raw' has no 'endraw'");
}

bool Lexer::lex_tag_end(TokenType end_type) {
  if (!brackets_.empty()) {
    return false;
  }
  const bool is_block = end_type == TokenType::kBlockEnd;
  const size_t end = match_close(at_, is_block ? "%}" : "}}", is_block);
  if (end == 0) {
    return false;
  }
  tokens_.push_back({end_type, line_, is_block ? "%}" : "}}"});
  advance(end);
  return true;
}

void Lexer::lex_tag(TokenType end_type) {
  const uint32_t line = line_;
  brackets_.clear();
  while (at_ < source_.size()) {
    if (lex_tag_end(end_type)) {
      return;
    }
    const size_t next = skip_space(at_);
    if (next != at_) {
      advance(next);
    } else {
      lex_token();
    }
  }
  fail_at(line, end_type == TokenType::kBlockEnd ? "a tag has no '%}'" : "a '{{' has no '}}'");
}

void Lexer::lex_token() {
  const char c = source_[at_];
  if (is_ascii_digit(c)) {
    lex_number();
  } else if (is_name_char(c)) {
    size_t end = at_;
    while (end < source_.size() && is_name_char(source_[end])) {
      ++end;
    }
    tokens_.push_back({TokenType::kName, line_, source_.substr(at_, end - at_)});
    at_ = end;
  } else if (c == '\'' || c == '"') {
    lex_string();
  } else {
    lex_operator();
  }
}

void Lexer::lex_operator() {
  static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
  const char c = source_[at_];
  size_t length = kOne.find(c) == std::string_view::npos ? 0 : 1;
  for (const std::string_view two : kTwo) {
    length = starts_with(at_, two) ? 2 : length;
  }
  if (length == 0) {
    fail_at(line_, "unexpected character '" + std::string(1, c) + "'");
  }
  if (c == '(' || c == '[' || c == '{') {
    brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
  } else if (c == ')' || c == ']' || c == '}') {
    if (brackets_.empty() || brackets_.back() != c) {
      fail_at(line_, "unexpected '" + std::string(1, c) + "'");
    }
    brackets_.pop_back();
  }
  tokens_.push_back({TokenType::kOperator, line_, source_.substr(at_, length)});
  at_ += length;
}

size_t Lexer::match_float(size_t at) const {
  if (at > 0 && source_[at - 1] == '.') {
    return 0;  // the 0 of `content.0.text`
  }
  const auto digits = [&](size_t from) {
    while (from < source_.size() && (is_ascii_digit(source_[from]) || source_[from] == '_')) {
      ++from;
    }
    return from;
  };
  size_t end = digits(at);
  bool is_float = false;
  if (starts_with(end, ".") && end + 1 < source_.size() && is_ascii_digit(source_[end + 1])) {
    end = digits(end + 1);
    is_float = true;
  }
  if (starts_with(end, "e") || starts_with(end, "E")) {
    size_t exponent = end + 1;
    exponent += starts_with(exponent, "+") || starts_with(exponent, "-") ? 1 : 0;
    if (exponent < source_.size() && is_ascii_digit(source_[exponent])) {
      end = digits(exponent);
      is_float = true;
    }
  }
  return is_float ? end : 0;
}

size_t Lexer::match_integer(size_t at) const {
  const auto run = [&](size_t from, std::string_view allowed) {
    while (from < source_.size() && allowed.find(source_[from]) != std::string_view::npos) {
      ++from;
    }
    return from;
  };
  if (source_[at] == '0' && at + 2 < source_.size()) {
    const char base = static_cast<char>(source_[at + 1] | 0x20);
    if (base == 'x') {
      return run(at + 2, "0123456789abcdefABCDEF_");
    }
    if (base == 'o') {
      return run(at + 2, "01234567_");
    }
    if (base == 'b') {
      return run(at + 2, "01_");
    }
  }
  return run(at, "0123456789_");
}

void Lexer::lex_number() {
  const size_t float_end = match_float(at_);
  const size_t end = float_end != 0 ? float_end : match_integer(at_);
  std::string digits(source_.substr(at_, end - at_));
  std::erase(digits, '_');
  tokens_.push_back({float_end != 0 ? TokenType::kFloat : TokenType::kInteger, line_,
                     arena_.copy(std::string_view(digits))});
  at_ = end;
}

/// Decodes \xHH, \uHHHH, \UHHHHHHHH and octal; answers the bytes consumed after the backslash.
size_t decode_numeric_escape(std::string_view rest, std::string& out, uint32_t line) {
  const char kind = rest[0];
  const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
  uint32_t value = 0;
  if (digits == 0) {
    size_t used = 0;
    while (used < 3 && used < rest.size() && rest[used] >= '0' && rest[used] <= '7') {
      value = value * 8 + static_cast<uint32_t>(rest[used++] - '0');
    }
    text::append_utf8(out, value);
    return used;
  }
  const std::string_view hex = rest.substr(1, digits);
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (error != std::errc{} || hex.size() != digits || end != hex.data() + digits ||
      value > 0x10FFFF) {
    fail_at(line, "a truncated escape in a string");
  }
  text::append_utf8(out, value);
  return digits + 1;
}

std::string unescape(std::string_view body, uint32_t line) {
  static constexpr std::string_view kNames = "\\'\"abfnrtv";
  static constexpr std::string_view kBytes = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t at = 0; at < body.size(); ++at) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out += body[at];
      continue;
    }
    const char name = body[++at];
    if (const size_t found = kNames.find(name); found != std::string_view::npos) {
      out += kBytes[found];
    } else if (name == 'x' || name == 'u' || name == 'U' || (name >= '0' && name <= '7')) {
      at += decode_numeric_escape(body.substr(at), out, line) - 1;
    } else if (name == 'N') {
      fail_at(line, "names of characters (\\N{…}) are not known; write the character itself");
    } else if (name != '\n') {  // a backslash before a line end joins the lines
      out += '\\';
      out += name;
    }
  }
  return out;
}

void Lexer::lex_string() {
  const char quote = source_[at_];
  size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) {
    end += source_[end] == '\\' ? 2 : 1;
  }
  if (end >= source_.size()) {
    fail_at(line_, "a string has no closing quote");
  }
  const std::string_view body = source_.substr(at_ + 1, end - at_ - 1);
  const bool plain = body.find('\\') == std::string_view::npos;
  tokens_.push_back({TokenType::kString, line_,
                     plain ? body : arena_.copy(std::string_view(unescape(body, line_)))});
  advance(end + 1);
}

}  // namespace

void fail_at(uint32_t line, std::string_view message) {
  fail("chat template line " + std::to_string(line) + ": " + std::string(message));
}

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out += source[at];
    } else if (at + 1 == source.size() || source[at + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

std::vector<Token> tokenize(std::string_view source, Arena& arena) {
  return Lexer(source, arena).run();
}

}  // namespace stator::chat_template::detail
