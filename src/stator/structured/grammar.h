// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

inline constexpr uint32_t kGrammarDepthMax = 64;  ///< nesting of groups
inline constexpr size_t kGrammarRulesMax = 20'000;

/// Which of the two notations a text is in: EBNF if any line outside comments has `::=`.
Grammar::Syntax detect_syntax(std::string_view text);

/// Whether `text` is a grammar of that notation: rules are well formed, every name is defined once,
/// and there is a start (`root` in EBNF, `start` in Lark). Refusals say line and column. Bounded by
/// kTextBytesMax, kGrammarDepthMax and kGrammarRulesMax; linear time.
Check check_grammar(std::string_view text, Grammar::Syntax syntax);

/// An accepted EBNF grammar as llama.cpp reads it: one line per rule, no comments, and names
/// without `_` and `.`. Refused when two names become the same.
Outcome<std::string> ebnf_to_gbnf(std::string_view text);

}  // namespace stator::structured
