// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stator/structured/refusal.h"

namespace stator::structured {

// The regular expressions that xgrammar, outlines and llguidance all understand: literals, `.`,
// classes, \d \w \s and their negations, groups (capturing, named or not), alternation, greedy and
// lazy repetition, ^ and $ at the ends. Look-around, back-references, \b, flags and possessive
// quantifiers are refused with the character they stand at.

inline constexpr uint32_t kRegexDepthMax = 64;      ///< nesting of groups
inline constexpr uint32_t kRegexRepeatMax = 1000;   ///< n in {n} and {m,n}
inline constexpr uint32_t kRegexSizeMax = 100'000;  ///< characters once {n} is written out

/// What a pattern's reader noticed.
struct RegexFacts {
  bool anchored = false;  ///< begins with ^ and ends with $
};

/// Whether `pattern` is one of them, and not empty. Linear time.
Outcome<RegexFacts> check_regex(std::string_view pattern);

/// The same language as a GBNF grammar with the rule `root`. `pattern` must have been accepted.
std::string regex_to_gbnf(std::string_view pattern);

/// A pattern that matches exactly these strings.
std::string choice_to_regex(std::span<const std::string> options);
std::string choice_to_gbnf(std::span<const std::string> options);

}  // namespace stator::structured
