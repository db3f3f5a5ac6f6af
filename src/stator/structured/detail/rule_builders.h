// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/structured/detail/json_tree.h"
#include "stator/structured/detail/regex_tree.h"
#include "stator/structured/refusal.h"
#include "stator/structured/rule_set.h"

namespace stator::structured {

/// How JSON is spelled.
struct JsonSpelling {
  bool any_whitespace = true;      ///< false: none
  std::string whitespace_pattern;  ///< accepted by check_regex; empty: the default
};

/// How a regular expression's characters are written.
enum class CharacterForm : uint8_t {
  kPlain,
  kJsonString,  ///< inside a JSON string: quotes, backslashes and controls escaped
};
/// Flags of Lark's regular expressions.
struct RegexFlags {
  bool ignore_case = false;
  bool dot_matches_newline = false;
};
ExpressionId add_regex(RuleSet& rules, const RegexTree& tree, CharacterForm form,
                       RegexFlags flags = {});
/// The same for a pattern that was accepted.
ExpressionId add_pattern(RuleSet& rules, std::string_view pattern, CharacterForm form,
                         RegexFlags flags = {});

/// Text with a part that follows the pattern, unless that says where the text begins or ends; in a
/// JSON string.
ExpressionId add_search(RuleSet& rules, std::string_view pattern);

/// One character of `ranges`.
ExpressionId add_characters(RuleSet& rules, std::vector<CodeRange> ranges, CharacterForm form);

struct TextLengths {
  uint32_t least = 0;
  uint32_t most = kUnbounded;  ///< kUnbounded: no limit
};
struct JoinedPatterns {
  enum class Outcome : uint8_t { kAdded, kTooLarge, kNothingFits };
  Outcome outcome = Outcome::kAdded;
  ExpressionId text = 0;
};
/// What a text must be like. Patterns were accepted by check_regex.
struct TextShape {
  std::vector<std::string_view> patterns;  ///< a part of it follows each (the whole, if anchored)
  std::vector<std::string_view> not_patterns;  ///< no part of it does
  std::vector<std::string_view> not_texts;
  TextLengths lengths;  ///< in characters
};
/// Text of that shape inside a JSON string: one automaton of at most some 100,000 states.
JoinedPatterns add_text(RuleSet& rules, const TextShape& shape);
/// Whether a part of the text follows the pattern (the whole, if it is anchored).
bool text_has(std::string_view pattern, std::string_view text);

/// A JSON value that follows the schema at `root` of `tree`, which check_json_schema accepted.
Outcome<ExpressionId> add_schema(RuleSet& rules, const JsonTree& tree,
                                 const JsonSpelling& spelling);
/// Any JSON object.
ExpressionId add_any_object(RuleSet& rules, const JsonSpelling& spelling);

/// Bounds of a JSON number, as decimal numbers in the client's spelling; empty: none.
struct NumberShape {
  bool whole = false;
  std::string_view minimum;
  std::string_view maximum;
  bool above_minimum = false;  ///< exclusive
  bool below_maximum = false;
  std::string_view multiple_of;
};
/// Nothing if the automaton would be too large.
std::optional<ExpressionId> add_number(RuleSet& rules, const NumberShape& shape);

/// The pattern of a string format, anchored; empty for one that says nothing about the text.
std::string_view format_pattern(std::string_view format);

Outcome<ExpressionId> add_ebnf(RuleSet& rules, std::string_view text);
Outcome<ExpressionId> add_lark(RuleSet& rules, std::string_view text, const JsonSpelling& spelling);
Outcome<ExpressionId> add_structural_tag(RuleSet& rules, std::string_view json,
                                         const JsonSpelling& spelling);

/// Texts that contain none of `blockers`, and end with the first occurrence of blockers[ending];
/// without `ending` texts that contain none.
ExpressionId add_text_until(RuleSet& rules, std::span<const std::string> blockers,
                            std::optional<size_t> ending);

/// Rewrites left recursion as repetition and checks that every rule can end.
Check finish_rules(RuleSet& rules);

}  // namespace stator::structured
