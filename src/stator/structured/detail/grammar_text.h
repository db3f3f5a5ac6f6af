// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stator::structured {

/// Takes one character or escape off the front of checked, non-empty grammar text.
uint32_t take_character(std::string_view& text);

/// The text that a quoted string of a grammar stands for, its quotes taken off.
std::string unescape_text(std::string_view text);

}  // namespace stator::structured
