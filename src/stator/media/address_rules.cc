// SPDX-License-Identifier: Apache-2.0
#include "stator/media/address_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace stator::media {
namespace {

struct Net4 {
  std::array<uint8_t, 4> base;
  uint8_t bits;
  std::string_view why;
};
constexpr Net4 kNets4[] = {
    {{0, 0, 0, 0}, 8, "unspecified"},        {{10, 0, 0, 0}, 8, "private"},
    {{100, 64, 0, 0}, 10, "carrier NAT"},    {{127, 0, 0, 0}, 8, "loopback"},
    {{169, 254, 0, 0}, 16, "link-local"},    {{172, 16, 0, 0}, 12, "private"},
    {{192, 0, 0, 0}, 24, "reserved"},        {{192, 0, 2, 0}, 24, "documentation"},
    {{192, 88, 99, 0}, 24, "reserved"},      {{192, 168, 0, 0}, 16, "private"},
    {{198, 18, 0, 0}, 15, "benchmarking"},   {{198, 51, 100, 0}, 24, "documentation"},
    {{203, 0, 113, 0}, 24, "documentation"}, {{224, 0, 0, 0}, 4, "multicast"},
    {{240, 0, 0, 0}, 4, "reserved"},
};

struct Net6 {
  std::array<uint8_t, 16> base;
  uint8_t bits;
  std::string_view why;
};
constexpr Net6 kNets6[] = {
    {{}, 96, "unspecified, loopback or IPv4-compatible"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, 96, "IPv4-mapped"},
    {{0, 0x64, 0xFF, 0x9B, 0, 1}, 48, "private NAT64"},
    {{0x01, 0x00}, 64, "discard-only"},
    {{0x20, 0x01, 0, 0}, 23, "Teredo or reserved"},
    {{0x20, 0x01, 0x0D, 0xB8}, 32, "documentation"},
    {{0x3F, 0xFF, 0}, 20, "documentation"},
    {{0x5F, 0x00}, 16, "segment routing"},
    {{0xFC}, 7, "private"},
    {{0xFE, 0x80}, 10, "link-local"},
    {{0xFE, 0xC0}, 10, "site-local"},
    {{0xFF}, 8, "multicast"},
};

bool within(const uint8_t* address, const uint8_t* base, size_t bits) {
  const size_t whole = bits / 8;
  if (std::memcmp(address, base, whole) != 0) {
    return false;
  }
  const size_t rest = bits % 8;
  return rest == 0 || (address[whole] ^ base[whole]) >> (8 - rest) == 0;
}

std::string_view why_refused_v4(const uint8_t* address) {
  const auto* const found = std::ranges::find_if(
      kNets4, [&](const Net4& net) { return within(address, net.base.data(), net.bits); });
  return found == std::end(kNets4) ? std::string_view() : found->why;
}

/// Where an IPv6 address has an IPv4 one that its packets are meant for; null: it has none.
const uint8_t* embedded_v4(const IpAddress& address) {
  constexpr std::array<uint8_t, 12> kNat64 = {0, 0x64, 0xFF, 0x9B};
  if (within(address.bytes.data(), kNat64.data(), 96)) {
    return address.bytes.data() + 12;
  }
  if (address.bytes[0] == 0x20 && address.bytes[1] == 0x02) {
    return address.bytes.data() + 2;  // 6to4
  }
  return nullptr;
}

}  // namespace

std::string IpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> out{};
  inet_ntop(length == 4 ? AF_INET : AF_INET6, bytes.data(), out.data(), out.size());
  return out.data();
}

std::optional<IpAddress> parse_address(std::string_view text) {
  IpAddress address;
  const std::string terminated(text);
  if (terminated.size() != text.size() || text.contains('\0')) {
    return std::nullopt;
  }
  // inet_pton takes exactly four decimal numbers without leading zeros, unlike inet_aton.
  if (inet_pton(AF_INET, terminated.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  address.length = 16;
  if (inet_pton(AF_INET6, terminated.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  return std::nullopt;
}

std::string_view why_refused(const IpAddress& address) {
  if (address.length == 4) {
    return why_refused_v4(address.bytes.data());
  }
  for (const Net6& net : kNets6) {
    if (within(address.bytes.data(), net.base.data(), net.bits)) {
      return net.why;
    }
  }
  if (const uint8_t* inner = embedded_v4(address)) {
    return why_refused_v4(inner);
  }
  // What is not given out yet is nobody's public address.
  return address.bytes[0] >> 5 == 1 ? std::string_view() : std::string_view("unassigned");
}

}  // namespace stator::media
