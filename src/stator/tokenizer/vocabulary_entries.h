// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/ids.h"

namespace stator::tokenizer {

/// Entries of a vocabulary file as they stand there. Views of the file, for loading only.
using VocabularyEntries = std::vector<std::pair<std::string_view, TokenId>>;

}  // namespace stator::tokenizer
