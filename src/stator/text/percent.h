// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::text {

/// %41 becomes A (RFC 3986 §2.1); a percent sign without two hex digits stands for itself.
std::string percent_decode(std::string_view text);

}  // namespace stator::text
