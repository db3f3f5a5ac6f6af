// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/structured/refusal.h"

namespace stator::structured {

/// Code points from `first` to `second`.
using CodeRange = std::pair<uint32_t, uint32_t>;

inline constexpr uint32_t kCodePointMax = 0x10FFFF;
inline constexpr uint32_t kUnbounded = UINT32_MAX;

struct RegexNode {
  enum class Kind : uint8_t {
    kEmpty,
    kLiteral,    ///< `code`
    kAny,        ///< every character but a line feed
    kClass,      ///< one of `ranges`
    kSequence,   ///< `children`
    kAlternate,  ///< one of `children`
    kRepeat,     ///< the only child, `min` to `max` times
  };
  Kind kind = Kind::kEmpty;
  bool negated = false;  ///< kClass: `ranges` are what [^…] leaves
  uint32_t code = 0;
  uint32_t min = 0;
  uint32_t max = 0;                ///< kUnbounded: no limit
  std::vector<CodeRange> ranges;   ///< sorted, disjoint, not empty
  std::vector<uint32_t> children;  ///< indices into RegexTree::nodes
};

/// A parsed pattern. Anchors and captures have left no trace but `anchored`.
struct RegexTree {
  std::vector<RegexNode> nodes;
  uint32_t root = 0;
  bool anchored_begin = false;
  bool anchored_end = false;
};

/// See regex.h for the language.
Outcome<RegexTree> parse_regex(std::string_view pattern);

/// `\d`, `\w` and `\s`, and their complements.
std::vector<CodeRange> digit_ranges();
std::vector<CodeRange> word_ranges();
std::vector<CodeRange> space_ranges();
std::vector<CodeRange> any_space_ranges();  ///< what \S leaves out
/// Sorts, merges; with `negate` the complement within 0 … kCodePointMax (without surrogates).
std::vector<CodeRange> normalize_ranges(std::vector<CodeRange> ranges, bool negate);

/// One character of UTF-8 text.
struct Character {
  uint32_t code = 0;
  uint32_t bytes = 0;  ///< 0: broken UTF-8, or the end
};
Character decode_utf8(std::string_view text);

}  // namespace stator::structured
