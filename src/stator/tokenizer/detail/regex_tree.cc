// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/regex_tree.h"

#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <utility>

namespace stator::tokenizer {
namespace {

using Kind = RegexNode::Kind;

constexpr int kDepthMax = 32;
constexpr uint32_t kRepeatMax = 100'000;

CodePointSet single(char32_t c) {
  return CodePointSet::of(c, c);
}

CodePointSet word_set() {
  using enum GeneralCategory;
  const CategorySet categories = as_set(kLu) | as_set(kLl) | as_set(kLt) | as_set(kLm) |
                                 as_set(kLo) | as_set(kMn) | as_set(kMc) | as_set(kMe) |
                                 as_set(kNd) | as_set(kNl) | as_set(kPc);
  return CodePointSet::of(categories)
      .united(CodePointSet::of(0x24b6, 0x24e9))
      .united(CodePointSet::of(0x1f130, 0x1f149))
      .united(CodePointSet::of(0x1f150, 0x1f169))
      .united(CodePointSet::of(0x1f170, 0x1f189));
}

const CodePointSet& space_set() {
  static const CodePointSet set = CodePointSet::of_class(kSpace);
  return set;
}

const CodePointSet& han_set() {
  static const CodePointSet set = CodePointSet::of_class(kHan);
  return set;
}

/// The other case of ASCII letters. What is beyond follows from `caseless`.
CodePointSet with_both_cases(const CodePointSet& set) {
  CodePointSet both = set;
  for (char32_t c = 'a'; c <= 'z'; ++c) {
    const char32_t upper = c - ('a' - 'A');
    if (set.contains(c) || set.contains(upper)) {
      both = both.united(single(c)).united(single(upper));
    }
  }
  return both;
}

bool has_case(const CodePointSet& set) {
  const CodePointSet without_case = CodePointSet::of(0, '@')
                                        .united(CodePointSet::of('[', '`'))
                                        .united(CodePointSet::of('{', 127));
  return !set.without(without_case).empty();
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  std::optional<RegexNode> run() {
    RegexNode root = alternatives(/*caseless=*/false, 0);
    const bool is_whole = !failed_ && at_ == pattern_.size();
    return is_whole ? std::optional(std::move(root)) : std::nullopt;
  }

 private:
  RegexNode fail() {
    failed_ = true;
    return {};
  }
  bool take(std::string_view text) {
    const bool found = pattern_.substr(at_).starts_with(text);
    at_ += found ? text.size() : 0;
    return found;
  }
  bool next_is(char c) const { return at_ < pattern_.size() && pattern_[at_] == c; }
  char32_t take_character() {
    const CodePoint next = decode_at(pattern_, at_);
    at_ += next.bytes;
    return next.value;
  }

  RegexNode alternatives(bool caseless, int depth);
  RegexNode sequence(bool caseless, int depth);
  RegexNode atom(bool caseless, int depth);
  RegexNode group(bool caseless, int depth);
  RegexNode repeated(RegexNode node);
  RegexNode set_node(CodePointSet set, bool caseless) const;
  std::optional<uint32_t> number();
  bool interval(RegexNode& repeat);
  CodePointSet character_class(bool caseless, int depth);
  /// One member of a class or the whole of an escape; `single_char` if it is one character.
  CodePointSet escape(std::optional<char32_t>& single_char);
  CodePointSet property(bool negated);
  std::optional<char32_t> hex(size_t digits_max);
  CodePointSet class_item(std::optional<char32_t>& single_char, int depth);

  std::string_view pattern_;
  size_t at_ = 0;
  bool failed_ = false;
};

RegexNode Parser::alternatives(bool caseless, int depth) {
  RegexNode node{.kind = Kind::kAlternatives};
  if (depth > kDepthMax) {
    return fail();
  }
  do {
    node.children.push_back(sequence(caseless, depth));
  } while (!failed_ && take("|"));
  if (node.children.size() == 1) {
    RegexNode only = std::move(node.children[0]);
    return only;
  }
  return node;
}

RegexNode Parser::sequence(bool caseless, int depth) {
  RegexNode node{.kind = Kind::kSequence};
  while (!failed_ && at_ < pattern_.size() && !next_is('|') && !next_is(')')) {
    node.children.push_back(repeated(atom(caseless, depth)));
  }
  return node;
}

RegexNode Parser::set_node(CodePointSet set, bool caseless) const {
  RegexNode node{.kind = Kind::kSet};
  node.caseless = caseless && has_case(set);
  node.set = node.caseless ? with_both_cases(set) : std::move(set);
  return node;
}

RegexNode Parser::atom(bool caseless, int depth) {
  const char c = pattern_[at_];
  if (c == '^' || c == '$') {
    ++at_;
    return {.kind = Kind::kAnchor, .mode = c};
  }
  if (c == '(') {
    ++at_;
    return group(caseless, depth + 1);
  }
  if (c == '[') {
    ++at_;
    return set_node(character_class(caseless, depth + 1), caseless);
  }
  if (c == '\\') {
    ++at_;
    std::optional<char32_t> single_char;
    CodePointSet set = escape(single_char);
    return set_node(std::move(set), caseless);
  }
  if (std::string_view(".*+?{").find(c) != std::string_view::npos) {
    return fail();
  }
  return set_node(single(take_character()), caseless);
}

RegexNode Parser::group(bool caseless, int depth) {
  RegexNode node;
  if (take("?!") || take("?=")) {
    node.kind = Kind::kLook;
    node.mode = pattern_[at_ - 1];
    node.children.push_back(alternatives(caseless, depth));
  } else if (take("?i:")) {
    node = alternatives(true, depth);
  } else if (take("?-i:")) {
    node = alternatives(false, depth);
  } else if (take("?:") || !next_is('?')) {
    node = alternatives(caseless, depth);
  } else {
    return fail();
  }
  return take(")") ? std::move(node) : fail();
}

std::optional<uint32_t> Parser::number() {
  std::optional<uint32_t> value;
  while (at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
    value = value.value_or(0) * 10 + static_cast<uint32_t>(pattern_[at_] - '0');
    ++at_;
    if (*value > kRepeatMax) {
      return std::nullopt;
    }
  }
  return value;
}

/// Behind the brace of `{2}`, `{2,}` or `{2,3}`.
bool Parser::interval(RegexNode& repeat) {
  const auto min = number();
  if (!min) {
    return false;
  }
  repeat.min = repeat.max = *min;
  if (take(",")) {
    repeat.max = next_is('}') ? RegexNode::kUnbounded : number().value_or(0);
  }
  // Behind an interval both signs mean something else than behind the others.
  return take("}") && repeat.max >= repeat.min && !next_is('+') && !next_is('?');
}

RegexNode Parser::repeated(RegexNode node) {
  if (failed_) {
    return {};
  }
  RegexNode repeat{.kind = Kind::kRepeat};
  if (take("?")) {
    repeat.max = 1;
  } else if (take("*")) {
    repeat.max = RegexNode::kUnbounded;
  } else if (take("+")) {
    repeat.min = 1;
    repeat.max = RegexNode::kUnbounded;
  } else if (take("{")) {
    if (!interval(repeat)) {
      return fail();
    }
  } else {
    return node;
  }
  const bool has_mode = pattern_[at_ - 1] != '}' && (next_is('?') || next_is('+'));
  if (has_mode) {
    repeat.mode = pattern_[at_++];
  }
  if (next_is('?') || next_is('*') || next_is('+') || next_is('{') || node.kind == Kind::kLook ||
      node.kind == Kind::kAnchor) {
    return fail();
  }
  repeat.children.push_back(std::move(node));
  return repeat;
}

std::optional<char32_t> Parser::hex(size_t digits_max) {
  char32_t value = 0;
  size_t digits = 0;
  for (; digits < digits_max && at_ < pattern_.size(); ++digits, ++at_) {
    const char c = pattern_[at_];
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<char32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + static_cast<char32_t>(lower - 'a' + 10);
    } else {
      break;
    }
  }
  return digits == 0 || value > 0x10FFFF ? std::nullopt : std::optional(value);
}

/// `\p{…}`, `\p{^…}`, behind the p.
CodePointSet Parser::property(bool negated) {
  const size_t end = pattern_.find('}', at_);
  if (!take("{") || end == std::string_view::npos) {
    failed_ = true;
    return {};
  }
  negated = take("^") != negated;
  const std::string_view name = pattern_.substr(at_, end - at_);
  at_ = end + 1;
  CodePointSet set;
  if (const auto categories = find_categories(name)) {
    set = CodePointSet::of(*categories);
  } else if (name == "Han") {
    set = han_set();
  } else {
    failed_ = true;
  }
  return negated ? set.complement() : set;
}

CodePointSet Parser::escape(std::optional<char32_t>& single_char) {
  constexpr std::string_view kNames = "nrtfvae";
  constexpr std::string_view kValues = "\n\r\t\f\v\a\x1b";
  if (at_ >= pattern_.size()) {
    failed_ = true;
    return {};
  }
  const char32_t c = take_character();
  switch (c) {
    case 's':
    case 'S':
      return c == 's' ? space_set() : space_set().complement();
    case 'd':
    case 'D': {
      const CodePointSet digits = CodePointSet::of(as_set(GeneralCategory::kNd));
      return c == 'd' ? digits : digits.complement();
    }
    case 'w':
    case 'W':
      return c == 'w' ? word_set() : word_set().complement();
    case 'p':
    case 'P':
      return property(c == 'P');
    case 'x': {
      const bool in_braces = take("{");
      single_char = hex(in_braces ? 8 : 2);
      failed_ |= in_braces && !take("}");
      break;
    }
    case 'u':
      single_char = pattern_.size() - at_ >= 4 ? hex(4) : std::nullopt;
      break;
    default:
      if (c < 0x80 && kNames.find(static_cast<char>(c)) != std::string_view::npos) {
        single_char = kValues[kNames.find(static_cast<char>(c))];
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
        failed_ = true;  // an anchor, a reference, or unknown
        return {};
      } else {
        single_char = c;
      }
  }
  failed_ |= !single_char;
  return single_char ? single(*single_char) : CodePointSet();
}

CodePointSet Parser::class_item(std::optional<char32_t>& single_char, int depth) {
  if (take("\\")) {
    return escape(single_char);
  }
  if (next_is('[')) {
    ++at_;
    if (next_is(':') || depth > kDepthMax) {
      failed_ = true;
      return {};
    }
    return character_class(/*caseless=*/false, depth + 1);
  }
  single_char = take_character();
  return single(*single_char);
}

/// Behind the opening bracket.
CodePointSet Parser::character_class(bool caseless, int depth) {
  const bool negated = take("^");
  failed_ |= negated && caseless;  // the members have two cases, not what is left
  CodePointSet set;
  std::optional<CodePointSet> left;  // of the last &&
  bool is_first = true;
  while (!failed_ && at_ < pattern_.size() && (is_first || !next_is(']'))) {
    is_first = false;
    if (take("&&")) {
      left = left ? left->intersected(set) : set;
      set = CodePointSet();
      failed_ |= caseless;
      continue;
    }
    std::optional<char32_t> first;
    CodePointSet item = class_item(first, depth);
    const bool is_range =
        first && next_is('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
    if (is_range) {
      ++at_;
      std::optional<char32_t> last;
      class_item(last, depth);
      failed_ |= !last || *last < *first;
      item = failed_ ? CodePointSet() : CodePointSet::of(*first, *last);
    }
    set = set.united(item);
  }
  failed_ |= !take("]");
  set = left ? left->intersected(set) : set;
  return negated ? set.complement() : set;
}

}  // namespace

std::optional<RegexNode> parse_regex(std::string_view pattern) {
  return is_valid_utf8(pattern) ? Parser(pattern).run() : std::nullopt;
}

}  // namespace stator::tokenizer
