// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stator::tokenizer {

/// A normal form of a regular expression in Oniguruma's syntax, for comparing: expressions of equal
/// form match the same in every text. Spelling does not count: escapes or the characters
/// themselves, classes by their members, groups that only group, `{1,}` for `+`, lookahead of one
/// character before one (`(?!\p{Han})\p{L}`), the order of short fixed texts none of which begins
/// another ('s|'t), possessive repeats where nothing could be given back. Expressions of unlike
/// form may still match the same.
///
/// Nothing for expressions with anything else than sets, groups, repeats, lookahead, `^` and `$`,
/// or larger than 16 KiB. Bytes, not text.
std::optional<std::string> regex_form(std::string_view pattern);

}  // namespace stator::tokenizer
