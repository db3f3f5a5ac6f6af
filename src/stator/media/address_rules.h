// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stator::media {

/// An IPv4 or IPv6 address by its bytes.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};
  size_t length = 4;  ///< 4 or 16

  std::string text() const;
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

/// "192.0.2.7" or "2001:db8::7", in no other spelling: no octal, hexadecimal or short forms, no
/// zone.
std::optional<IpAddress> parse_address(std::string_view text);

/// Why nothing may be fetched from an address: "private", "loopback", …; empty for a public one.
/// IPv4 addresses inside IPv6 ones (mapped, NAT64, 6to4) count as themselves. By the registries of
/// special-purpose addresses (RFC 6890) as of 2025.
std::string_view why_refused(const IpAddress& address);

}  // namespace stator::media
