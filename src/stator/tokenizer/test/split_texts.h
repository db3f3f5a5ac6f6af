// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/random.h"
#include "stator/tokenizer/pre_tokenizer.h"

namespace stator::tokenizer {

// Texts that tell split expressions apart, and what is left of them.

std::vector<std::string> cut(const PreTokenizer& pre_tokenizer, std::string_view text);
/// What isolates the matches of the expression, run by PCRE2.
PreTokenizer regex_split(std::string_view pattern);
PreTokenizer regex_splits(std::span<const std::string_view> expressions);
/// Characters of every class that the expressions distinguish.
std::string text_of_alphabet(Random& random);
/// Neighbours in one block of characters of any plane, with some white space and signs.
std::string text_of_one_block(Random& random);

}  // namespace stator::tokenizer
