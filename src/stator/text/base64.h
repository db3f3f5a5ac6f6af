// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stator::text {

/// The bytes that standard base64 (RFC 4648 §4, padded or not) spells; nothing if it is malformed.
std::optional<std::string> decode_base64(std::string_view text);
/// Appends the spelling of `bytes`, padded.
void append_base64(std::string& out, std::string_view bytes);

}  // namespace stator::text
