// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/keyed_map.h"
#include "stator/structured/refusal.h"

namespace stator::structured {

/// A word of a grammar text. What `kind` means is the notation's business: the character itself for
/// punctuation, one of these otherwise.
struct GrammarToken {
  static constexpr char kName = 'n';
  static constexpr char kString = 's';
  static constexpr char kRegex = 'r';
  static constexpr char kClass = 'c';
  static constexpr char kNumber = '0';
  static constexpr char kSpecial = 't';    ///< <|special token|>
  static constexpr char kDefine = '=';     ///< ::=
  static constexpr char kRange = '-';      ///< ..
  static constexpr char kArrow = '>';      ///< ->
  static constexpr char kDirective = '%';  ///< %import
  static constexpr char kBody = 'j';       ///< {…} after %json
  static constexpr char kNewline = '\n';
  static constexpr char kEnd = '\0';

  char kind = kEnd;
  std::string_view text;
  size_t at = 0;  ///< byte offset
};

/// "line 3, column 7", counting characters from 1.
std::string place_in(std::string_view text, size_t at);

/// Reads the pieces that both notations share and keeps the first complaint.
class GrammarScanner {
 public:
  explicit GrammarScanner(std::string_view text) : text_(text) {}

  std::string_view text() const { return text_; }
  size_t position() const { return at_; }
  bool at_end() const { return at_ == text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool skip(std::string_view word) {
    const bool here = text_.substr(at_).starts_with(word);
    at_ += here ? word.size() : 0;
    return here;
  }
  void advance(size_t bytes) { at_ += bytes; }
  void skip_line();
  template <typename Belongs>
  std::string_view take_while(Belongs&& belongs) {
    const size_t begin = at_;
    while (at_ < text_.size() && belongs(text_[at_])) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  /// From the opening `quote` at the position to its end on the same line; backslash escapes.
  bool take_quoted(char quote, std::string_view what);
  /// After take_quoted of a string: every escape is one that grammars know.
  bool check_escapes(size_t begin, std::string_view known);

  bool fail(size_t at, std::string_view why);
  Refusal take_refusal() { return std::move(*refusal_); }

 private:
  std::string_view text_;
  size_t at_ = 0;
  std::optional<Refusal> refusal_;
};

/// Which names a grammar defines and uses.
class GrammarNames {
 public:
  /// False if `name` was defined before.
  bool define(std::string_view name) { return defined_.emplace(name).second; }
  void use(const GrammarToken& name) { used_.push_back(name); }
  bool defines(std::string_view name) const { return defined_.contains(name); }
  size_t count() const { return defined_.size(); }
  /// The first use without a definition.
  const GrammarToken* find_undefined() const;

 private:
  KeyedSet defined_;
  std::vector<GrammarToken> used_;
};

/// A complete EBNF text as words, rules checked. Newlines and comments are gone.
Outcome<std::vector<GrammarToken>> parse_ebnf(std::string_view text);
Check check_lark(std::string_view text);

/// A complete Lark text as words, checked, with line ends; and where its statements begin.
struct LarkText {
  std::vector<GrammarToken> tokens;
  std::vector<size_t> statements;
};
Outcome<LarkText> parse_lark(std::string_view text);

}  // namespace stator::structured
