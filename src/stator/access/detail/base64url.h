// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stator::access::detail {

/// RFC 4648 §5 without padding.
std::string encode_base64url(std::string_view bytes);
/// None for what is not such text: other characters, padding, bits left over.
std::optional<std::string> decode_base64url(std::string_view text);

}  // namespace stator::access::detail
