// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace stator {

/// What some editors put in front of UTF-8 text; no part of the text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace stator
