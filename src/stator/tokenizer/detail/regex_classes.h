// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/tokenizer/general_category.h"

namespace stator::tokenizer {

enum class Members : uint8_t { kThese, kAllOthers };

/// The inside of a PCRE2 class (what stands between the brackets) that holds the code points of
/// `categories`, or all others, by our table. PCRE2's own `\p` follows the Unicode version it was
/// built with: where that differs from ours, the differences are spelled out behind it.
std::string class_members(CategorySet categories, Members members);

}  // namespace stator::tokenizer
