// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/tokenizer/normalizer.h"

namespace stator::tokenizer {

/// Appends valid UTF-8 `text` in a Unicode normalization form. O(n log n) for any input: combining
/// marks are sorted, not bubbled. Follows the reference's (older) tables: what they do not know
/// stays as it is.
void append_unicode_form(Normalizer::UnicodeForm form, std::string_view text, std::string& out);

/// Whether `text` certainly is in the form already (no false yes); one pass.
bool is_in_unicode_form(Normalizer::UnicodeForm form, std::string_view text);

}  // namespace stator::tokenizer
