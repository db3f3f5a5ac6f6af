// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

/// Makes tables that only words of more than 62 bytes need, unless one has come already; else the
/// first of them waits for it (a tenth of a second for 128,000 tokens). Any thread, while others
/// encode.
void prepare_long_words(const Tokenizer& tokenizer);

}  // namespace stator::tokenizer
