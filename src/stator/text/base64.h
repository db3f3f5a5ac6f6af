// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stator::text {

/// The bytes that standard base64 (RFC 4648 §4, padded or not) spells; nothing if it is malformed.
std::optional<std::string> decode_base64(std::string_view text);
/// Appends the spelling of `bytes`, padded.
void append_base64(std::string& out, std::string_view bytes);

enum class Padding : uint8_t { kNone, kEquals };

/// `bytes` in the alphabet for names and URLs (RFC 4648 §5).
std::string encode_base64url(std::string_view bytes, Padding padding = Padding::kNone);
/// Nothing for what is not such text without padding: other characters, bits left over.
std::optional<std::string> decode_base64url(std::string_view text);

}  // namespace stator::text
