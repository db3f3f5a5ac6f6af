// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/tokenizer/detail/code_point_set.h"

namespace stator::tokenizer {

/// A regular expression taken apart. Members without a meaning for a kind have their defaults.
struct RegexNode {
  enum class Kind : uint8_t {
    kSet,           ///< one character of `set`, in both cases if `caseless`
    kSequence,      ///< the children one after the other
    kAlternatives,  ///< the first child that matches
    kRepeat,        ///< the child `min` to `max` times; mode ' ' greedy, '?' lazy, '+' possessive
    kLook,          ///< lookahead at the child; mode '=' or '!'
    kAnchor,        ///< mode '^' or '$'
    kTexts,         ///< made by regex_form: alternatives that are fixed texts, in `texts`
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  Kind kind = Kind::kSet;
  char mode = ' ';
  bool caseless = false;
  uint32_t min = 0;
  uint32_t max = 0;
  CodePointSet set;
  std::string texts;
  std::vector<RegexNode> children;
};

/// Oniguruma's syntax, as far as regex_form() goes; nothing for all else.
std::optional<RegexNode> parse_regex(std::string_view pattern);

}  // namespace stator::tokenizer
