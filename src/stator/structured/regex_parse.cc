// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "stator/structured/detail/regex_tree.h"
#include "stator/structured/regex.h"
#include "stator/structured/structured_output.h"
#include "stator/text/hex.h"
#include "stator/text/utf8.h"

namespace stator::structured {
namespace {

constexpr uint32_t kHighSurrogate = 0xD800;
constexpr uint32_t kAfterSurrogates = 0xE000;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Recursive descent over the groups, depth bounded. After the first refusal every call returns
/// false.
///
/// Sizes: `size` of a piece is its length in characters once repetitions are written out; what
/// grows beyond kRegexSizeMax is refused before any decoder has to unroll it.
class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : pattern_(pattern) {}

  Outcome<RegexTree> parse() {
    Piece piece;
    if (!parse_alternatives(piece, 0)) {
      return std::move(*refusal_);
    }
    if (!at_end()) {
      fail("`)` without `(`; write \\) for the character");
      return std::move(*refusal_);
    }
    tree_.root = piece.node;
    return std::move(tree_);
  }

 private:
  struct Piece {
    uint32_t node = 0;
    uint64_t size = 0;
  };

  bool fail(std::string_view why) { return fail_at(at_, why); }
  bool fail_at(size_t byte, std::string_view why) {
    const std::string_view before = pattern_.substr(0, byte);
    const auto characters = std::ranges::count_if(
        before, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    refusal_ = refuse_at(fmt::format("character {}", characters + 1), why);
    return false;
  }

  bool at_end() const { return at_ == pattern_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool skip(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) {
      return false;
    }
    at_ += text.size();
    return true;
  }

  uint32_t add(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }
  Piece literal(uint32_t code) {
    return {add({.kind = RegexNode::Kind::kLiteral, .code = code}), 1};
  }
  Piece char_class(std::vector<CodeRange> ranges) {
    return {add({.kind = RegexNode::Kind::kClass, .ranges = std::move(ranges)}), 1};
  }

  bool parse_alternatives(Piece& out, uint32_t depth);
  bool parse_sequence(Piece& out, uint32_t depth);
  bool parse_anchor(uint32_t depth, bool first, bool& was_anchor);
  bool parse_atom(Piece& out, uint32_t depth);
  bool parse_group(Piece& out, uint32_t depth);
  bool parse_group_head();
  bool parse_repeat(Piece& piece);
  bool parse_bounds(uint32_t& min, uint32_t& max);
  bool parse_number(uint32_t& value);
  bool parse_escape(Piece& out);
  bool parse_code_escape(char letter, uint32_t& code);
  bool parse_hex(size_t digits, uint32_t& code);
  bool parse_class(Piece& out);
  bool parse_class_item(std::vector<CodeRange>& ranges, std::optional<uint32_t>& single,
                        bool negated);
  bool parse_character(uint32_t& code);

  std::string_view pattern_;
  size_t at_ = 0;
  RegexTree tree_;
  uint32_t open_alternatives_ = 0;   // top-level ones that did not begin with ^
  uint32_t loose_alternatives_ = 0;  // top-level ones that did not end with $
  std::optional<Refusal> refusal_;
};

// NOLINTNEXTLINE(misc-no-recursion): bounded by kRegexDepthMax
bool RegexParser::parse_alternatives(Piece& out, uint32_t depth) {
  RegexNode node{.kind = RegexNode::Kind::kAlternate};
  uint64_t size = 0;
  do {
    Piece piece;
    if (!parse_sequence(piece, depth)) {
      return false;
    }
    node.children.push_back(piece.node);
    size += piece.size;
  } while (skip("|"));
  const bool one = node.children.size() == 1;
  out = {one ? node.children.front() : add(std::move(node)), size};
  if (depth == 0) {
    tree_.anchored_begin = open_alternatives_ == 0;
    tree_.anchored_end = loose_alternatives_ == 0;
  }
  return true;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kRegexDepthMax
bool RegexParser::parse_sequence(Piece& out, uint32_t depth) {
  RegexNode node{.kind = RegexNode::Kind::kSequence};
  uint64_t size = 0;
  bool begins = false;
  bool ends = false;
  for (bool first = true; !at_end() && peek() != '|' && peek() != ')'; first = false) {
    bool was_anchor = false;
    const bool begin = peek() == '^';
    if (!parse_anchor(depth, first, was_anchor)) {
      return false;
    }
    if (was_anchor) {
      (begin ? begins : ends) = true;
      continue;
    }
    Piece piece;
    if (!parse_atom(piece, depth) || !parse_repeat(piece)) {
      return false;
    }
    node.children.push_back(piece.node);
    size += piece.size;
    if (size > kRegexSizeMax) {
      return fail(
          fmt::format("the pattern is longer than {} characters once repetitions are "
                      "written out: use smaller counts, or * and +",
                      kRegexSizeMax));
    }
  }
  if (depth == 0) {
    open_alternatives_ += begins ? 0 : 1;
    loose_alternatives_ += ends ? 0 : 1;
  }
  if (node.children.empty()) {
    out = {add({}), 0};
  } else {
    const bool one = node.children.size() == 1;
    out = {one ? node.children.front() : add(std::move(node)), size};
  }
  return true;
}

bool RegexParser::parse_anchor(uint32_t depth, bool first, bool& was_anchor) {
  if (peek() == '^') {
    if (depth > 0 || !first) {
      return fail("`^` is only supported at the very beginning; write \\^ for the character");
    }
  } else if (peek() == '$') {
    const bool last = at_ + 1 == pattern_.size() || pattern_[at_ + 1] == '|';
    if (depth > 0 || !last) {
      return fail("`$` is only supported at the very end; write \\$ for the character");
    }
  } else {
    return true;
  }
  ++at_;
  was_anchor = true;
  return true;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kRegexDepthMax
bool RegexParser::parse_atom(Piece& out, uint32_t depth) {
  switch (peek()) {
    case '(':
      return parse_group(out, depth);
    case '[':
      return parse_class(out);
    case '\\':
      return parse_escape(out);
    case '.':
      ++at_;
      out = {add({.kind = RegexNode::Kind::kAny}), 1};
      return true;
    case '*':
    case '+':
    case '?':
      return fail(
          fmt::format("`{0}` has nothing to repeat; write \\{0} for the character", peek()));
    case '{':
    case '}':
    case ']':
      return fail(fmt::format("write \\{} for the character", peek()));
    default:
      break;
  }
  uint32_t code = 0;
  if (!parse_character(code)) {
    return false;
  }
  out = literal(code);
  return true;
}

bool RegexParser::parse_character(uint32_t& code) {
  const Character character = decode_utf8(pattern_.substr(at_));
  if (character.bytes == 0) {
    return fail("the pattern is not valid UTF-8");
  }
  at_ += character.bytes;
  code = character.code;
  return true;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kRegexDepthMax
bool RegexParser::parse_group(Piece& out, uint32_t depth) {
  const size_t begin = at_;
  if (depth == kRegexDepthMax) {
    return fail(fmt::format("groups are nested deeper than {}", kRegexDepthMax));
  }
  ++at_;
  if (!parse_group_head() || !parse_alternatives(out, depth + 1)) {
    return false;
  }
  return skip(")") || fail_at(begin, "`(` without `)`; write \\( for the character");
}

// What may follow "(": nothing, "?:" or a name.
bool RegexParser::parse_group_head() {
  const size_t begin = at_ - 1;
  if (!skip("?") || skip(":")) {
    return true;
  }
  for (const std::string_view around : {"=", "!", "<=", "<!"}) {
    if (skip(around)) {
      return fail_at(
          begin, "look-ahead and look-behind are not supported: write out what may stand there");
    }
  }
  if (skip(">")) {
    return fail_at(begin, "atomic groups are not supported: use (?:…)");
  }
  if (!skip("<") && !skip("P<")) {
    return fail_at(begin,
                   "flags and this kind of group are not supported: use (?:…), and write both "
                   "cases of a letter as [aA]");
  }
  const size_t name = at_;
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  while (is_name(peek())) {
    ++at_;
  }
  return (at_ > name && skip(">")) ||
         fail_at(begin, "the group's name must be letters, digits and _");
}

bool RegexParser::parse_repeat(Piece& piece) {
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  const size_t begin = at_;
  if (skip("*")) {
    min = 0;
  } else if (skip("+")) {
    min = 1;
  } else if (skip("?")) {
    max = 1;
  } else if (peek() == '{') {
    if (!parse_bounds(min, max)) {
      return false;
    }
  } else {
    return true;
  }
  if (peek() == '+') {
    return fail("possessive repetition is not supported: leave the second + out");
  }
  skip("?");  // lazy: the same language
  if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') {
    return fail("one repetition after another: put a group (?:…) around the first");
  }
  const uint64_t times = max == kUnbounded ? std::max<uint32_t>(min, 1) : max;
  piece.size *= std::max<uint64_t>(times, 1);
  if (piece.size > kRegexSizeMax) {
    return fail_at(begin, fmt::format("the pattern is longer than {} characters once repetitions "
                                      "are written out: use smaller counts, or * and +",
                                      kRegexSizeMax));
  }
  piece.node =
      add({.kind = RegexNode::Kind::kRepeat, .min = min, .max = max, .children = {piece.node}});
  return true;
}

bool RegexParser::parse_bounds(uint32_t& min, uint32_t& max) {
  const size_t begin = at_;
  constexpr std::string_view kForm =
      "a repetition is {n}, {n,} or {m,n} with numbers up to 1000; write \\{ for the character";
  static_assert(kRegexRepeatMax == 1000, "the message says so");
  ++at_;
  if (!parse_number(min)) {
    return fail_at(begin, kForm);
  }
  max = min;
  if (skip(",")) {
    max = kUnbounded;
    if (peek() != '}' && !parse_number(max)) {
      return fail_at(begin, kForm);
    }
  }
  if (!skip("}")) {
    return fail_at(begin, kForm);
  }
  return min <= max || fail_at(begin, "the smaller number must come first");
}

bool RegexParser::parse_number(uint32_t& value) {
  const size_t begin = at_;
  value = 0;
  while (peek() >= '0' && peek() <= '9' && value <= kRegexRepeatMax) {
    value = value * 10 + static_cast<uint32_t>(peek() - '0');
    ++at_;
  }
  return at_ > begin && value <= kRegexRepeatMax;
}

bool RegexParser::parse_escape(Piece& out) {
  const char letter = peek(1);
  switch (letter) {
    case 'd':
    case 'D':
      at_ += 2;
      out = char_class(normalize_ranges(digit_ranges(), letter == 'D'));
      return true;
    case 'w':
    case 'W':
      at_ += 2;
      out = char_class(normalize_ranges(word_ranges(), letter == 'W'));
      return true;
    case 's':
    case 'S':
      at_ += 2;
      out = char_class(letter == 's' ? space_ranges() : normalize_ranges(any_space_ranges(), true));
      return true;
    case 'b':
    case 'B':
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
      return fail("this anchor is not supported: the whole output has to match anyway");
    case 'p':
    case 'P':
      return fail("Unicode properties are not supported: write the ranges, as [a-zà-ÿ]");
    case 'k':
      return fail("back-references are not supported");
    default:
      break;
  }
  if (letter >= '1' && letter <= '9') {
    return fail("back-references are not supported");
  }
  uint32_t code = 0;
  if (!parse_code_escape(letter, code)) {
    return false;
  }
  out = literal(code);
  return true;
}

// An escape that stands for one character, at the backslash.
bool RegexParser::parse_code_escape(char letter, uint32_t& code) {
  if (letter == 'c' && at_ + 2 < pattern_.size() && is_letter(pattern_[at_ + 2])) {
    code = static_cast<unsigned char>(pattern_[at_ + 2]) & 0x1FU;
    at_ += 3;
    return true;
  }
  constexpr std::string_view kLetters = "nrtfv0";
  constexpr std::string_view kCodes("\n\r\t\f\v\0", 6);
  if (at_ + 1 >= pattern_.size()) {
    return fail("the pattern ends in the middle of an escape; write \\\\ for a backslash");
  }
  if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
    code = static_cast<unsigned char>(kCodes[known]);
    at_ += 2;
    return true;
  }
  if (letter == 'x') {
    return parse_hex(2, code);
  }
  if (letter == 'u') {
    return parse_hex(4, code);
  }
  const bool is_alphanumeric = (letter >= 'a' && letter <= 'z') ||
                               (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
  if (is_alphanumeric) {
    return fail(fmt::format("the escape \\{} is not supported", letter));
  }
  ++at_;
  return parse_character(code);
}

// \xHH, \uHHHH, and both with braces.
bool RegexParser::parse_hex(size_t digits, uint32_t& code) {
  const size_t begin = at_;
  at_ += 2;
  const bool braces = skip("{");
  const size_t limit = braces ? 6 : digits;
  size_t read = 0;
  for (code = 0; read < limit && text::hex_value(peek()) != text::kNoHexDigit; ++read) {
    code = code * 16 + text::hex_value(peek());
    ++at_;
  }
  const bool complete = braces ? read > 0 && skip("}") : read == digits;
  const bool surrogate = code >= kHighSurrogate && code < kAfterSurrogates;
  return (complete && code <= kCodePointMax && !surrogate) ||
         fail_at(begin, "must be \\xHH, \\uHHHH or \\u{H…} and name a character");
}

bool RegexParser::parse_class(Piece& out) {
  const size_t begin = at_;
  ++at_;
  const bool negate = skip("^");
  std::vector<CodeRange> ranges;
  while (!at_end() && peek() != ']') {
    const size_t item = at_;
    std::optional<uint32_t> low;
    if (!parse_class_item(ranges, low, negate)) {
      return false;
    }
    const bool is_range = peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size();
    if (!is_range) {
      if (low) {
        ranges.emplace_back(*low, *low);
      }
      continue;
    }
    ++at_;
    std::optional<uint32_t> high;
    if (!parse_class_item(ranges, high, negate)) {
      return false;
    }
    if (!low || !high || *low > *high) {
      return fail_at(item,
                     "the range must go from a lower to a higher character; write \\- for "
                     "the character");
    }
    ranges.emplace_back(*low, *high);
  }
  if (!skip("]")) {
    return fail_at(begin, "`[` without `]`; write \\[ for the character");
  }
  ranges = normalize_ranges(std::move(ranges), negate);
  if (ranges.empty()) {
    return fail_at(begin, "the class matches no character");
  }
  out = char_class(std::move(ranges));
  tree_.nodes[out.node].negated = negate;
  return true;
}

// A character (into `single`) or a class like \d (into `ranges`).
bool RegexParser::parse_class_item(std::vector<CodeRange>& ranges, std::optional<uint32_t>& single,
                                   bool negated) {
  if (peek() == '[') {
    return fail("`[` inside a class means different things to different engines: write \\[");
  }
  for (const std::string_view pair : {"&&", "--", "~~"}) {
    if (pattern_.substr(at_).starts_with(pair)) {
      return fail(fmt::format("`{0}` inside a class is not supported: write \\{1}", pair, pair[0]));
    }
  }
  uint32_t code = 0;
  if (peek() != '\\') {
    if (!parse_character(code)) {
      return false;
    }
    single = code;
    return true;
  }
  const char letter = peek(1);
  if (std::string_view("dDwWsS").contains(letter) && letter != '\0') {
    if (negated && (letter == 's' || letter == 'S')) {  // what is left is less than anybody's
      at_ += 2;
      const auto added =
          letter == 's' ? any_space_ranges() : normalize_ranges(space_ranges(), true);
      ranges.insert(ranges.end(), added.begin(), added.end());
      return true;
    }
    Piece piece;
    if (!parse_escape(piece)) {
      return false;
    }
    const std::vector<CodeRange>& added = tree_.nodes[piece.node].ranges;
    ranges.insert(ranges.end(), added.begin(), added.end());
    tree_.nodes.pop_back();  // only its ranges were wanted
    return true;
  }
  if (!parse_code_escape(letter, code)) {
    return false;
  }
  single = code;
  return true;
}

}  // namespace

Outcome<RegexTree> parse_regex(std::string_view pattern) {
  if (pattern.empty()) {
    return refuse("must not be empty");
  }
  if (pattern.size() > kRegexBytesMax) {
    return Refusal{
        Code::kTooLarge, {}, fmt::format("is longer than {} KiB", kRegexBytesMax >> 10U)};
  }
  return RegexParser(pattern).parse();
}

std::vector<CodeRange> digit_ranges() {
  return {{'0', '9'}};
}
std::vector<CodeRange> word_ranges() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
/// What some reader of patterns takes for \s: ECMAScript's, Python's and Unicode's together. Text
/// that is none of these is \S to everybody.
std::vector<CodeRange> any_space_ranges() {
  return {{'\t', '\r'},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
          {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200A}, {0x2028, 0x2029},
          {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
std::vector<CodeRange> space_ranges() {
  return {{'\t', '\r'}, {' ', ' '}};
}

std::vector<CodeRange> normalize_ranges(std::vector<CodeRange> ranges, bool negate) {
  std::ranges::sort(ranges);
  std::vector<CodeRange> merged;
  for (const CodeRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, range.second);
    } else {
      merged.push_back(range);
    }
  }
  if (!negate) {
    return merged;
  }
  std::vector<CodeRange> rest;
  uint32_t next = 0;
  const auto add = [&rest](uint32_t first, uint32_t last) {
    if (first < kHighSurrogate) {
      rest.emplace_back(first, std::min(last, kHighSurrogate - 1));
    }
    if (last >= kAfterSurrogates) {
      rest.emplace_back(std::max(first, kAfterSurrogates), last);
    }
  };
  for (const auto& [first, last] : merged) {
    if (first > next) {
      add(next, first - 1);
    }
    next = last + 1;
  }
  if (next <= kCodePointMax) {
    add(next, kCodePointMax);
  }
  return rest;
}

Character decode_utf8(std::string_view text) {
  if (text.empty() || !text::classify_utf8(text).is_character()) {
    return {};
  }
  const text::CodePoint point = text::decode_at(text, 0);
  return {point.value, point.bytes};
}

}  // namespace stator::structured
