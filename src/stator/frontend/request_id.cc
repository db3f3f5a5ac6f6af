// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_id.h"

#include <cctype>
#include <optional>
#include <string_view>

namespace stator::frontend {
namespace {

constexpr size_t kUuidBytes = 36;

bool is_dash_place(size_t i) {
  return i == 8 || i == 13 || i == 18 || i == 23;
}

bool is_uuid(std::string_view text) {
  if (text.size() != kUuidBytes) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const bool fits =
        is_dash_place(i) ? text[i] == '-' : std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (!fits) {
      return false;
    }
  }
  return true;
}

/// In five groups: 8-4-4-4-12 digits.
std::string uuid_text(uint64_t high, uint64_t low) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(kUuidBytes, '-');
  size_t nibble = 0;
  for (size_t i = 0; i < kUuidBytes; ++i) {
    if (!is_dash_place(i)) {
      const uint64_t half = nibble < 16 ? high : low;
      text[i] = kDigits[(half >> (60 - 4 * (nibble % 16))) & 0xF];
      ++nibble;
    }
  }
  return text;
}

/// The client's own, under our name or Dynamo's deprecated one.
std::optional<std::string_view> own_id(const net::HttpRequest& request) {
  for (const std::string_view name : {"x-request-id", "x-dynamo-request-id"}) {
    if (const auto given = request.header(name); given && is_uuid(*given)) {
      return given;
    }
  }
  return std::nullopt;
}

}  // namespace

bool names_itself(const net::HttpRequest& request) {
  return own_id(request).has_value();
}

std::string make_request_id(const net::HttpRequest& request, Random& random) {
  if (const auto own = own_id(request)) {
    return std::string(*own);
  }
  const uint64_t high = (random.next() & ~0xF000ULL) | 0x4000ULL;
  const uint64_t low = (random.next() & ~(3ULL << 62)) | (2ULL << 62);
  return uuid_text(high, low);
}

}  // namespace stator::frontend
