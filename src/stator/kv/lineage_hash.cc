// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/lineage_hash.h"

#include <algorithm>
#include <charconv>

namespace stator::kv {
namespace {

using Wide = unsigned __int128;

constexpr std::string_view kAlphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
constexpr uint32_t kModes = 3;

constexpr uint32_t position_bits(uint32_t mode) {
  return 8 * (mode + 1);
}
constexpr uint32_t parent_bits(uint32_t mode) {
  return 128 - 2 - 64 - position_bits(mode);
}
constexpr uint32_t mode_of(uint32_t position) {
  return position < (1U << 8) ? 0 : position < (1U << 16) ? 1 : 2;
}
constexpr Wide wide(uint64_t high, uint64_t low) {
  return (Wide{high} << 64) | low;
}

LineageHash pack(uint32_t position, uint64_t current, uint64_t parent) {
  const uint32_t mode = mode_of(position);
  const uint32_t fragment = parent_bits(mode);
  const Wide value = (Wide{mode} << 126) | (Wide{position} << (64 + fragment)) |
                     (Wide{current} << fragment) | (parent & ((uint64_t{1} << fragment) - 1));
  return {static_cast<uint64_t>(value >> 64), static_cast<uint64_t>(value)};
}

/// Base58 of the eight bytes, most significant first; each leading zero byte is a '1'.
std::string base58(uint64_t value) {
  std::string out;
  for (uint64_t rest = value; rest > 0; rest /= 58) {
    out += kAlphabet[rest % 58];
  }
  for (int shift = 56; shift >= 0 && ((value >> shift) & 0xFF) == 0; shift -= 8) {
    out += '1';
  }
  std::ranges::reverse(out);
  return out;
}

std::optional<uint64_t> read_base58(std::string_view text) {
  uint64_t value = 0;
  for (const char c : text) {
    const size_t digit = kAlphabet.find(c);
    if (digit == std::string_view::npos || __builtin_mul_overflow(value, uint64_t{58}, &value) ||
        __builtin_add_overflow(value, uint64_t{digit}, &value)) {
      return std::nullopt;
    }
  }
  return base58(value) == text ? std::optional(value) : std::nullopt;
}

}  // namespace

LineageHash LineageHash::root(blocks::LocalHash first) {
  return pack(0, blocks::chain(first).value(), 0);
}

std::optional<LineageHash> LineageHash::make(uint32_t position, blocks::SequenceHash current,
                                             blocks::SequenceHash parent) {
  if (position >= kPositionsMax) {
    return std::nullopt;
  }
  return pack(position, current.value(), position == 0 ? 0 : parent.value());
}

std::optional<LineageHash> LineageHash::extend(blocks::LocalHash child) const {
  return make(position() + 1, blocks::chain(current(), child), current());
}

uint32_t LineageHash::position() const {
  const uint32_t mode = std::min(static_cast<uint32_t>(high_ >> 62), kModes - 1);
  const uint32_t bits = position_bits(mode);
  return static_cast<uint32_t>((high_ << 2) >> (64 - bits));
}

blocks::SequenceHash LineageHash::current() const {
  const uint32_t mode = std::min(static_cast<uint32_t>(high_ >> 62), kModes - 1);
  return blocks::SequenceHash(static_cast<uint64_t>(wide(high_, low_) >> parent_bits(mode)));
}

uint64_t LineageHash::parent_fragment() const {
  const uint32_t mode = std::min(static_cast<uint32_t>(high_ >> 62), kModes - 1);
  return low_ & ((uint64_t{1} << parent_bits(mode)) - 1);
}

std::string LineageHash::text() const {
  std::string out = std::to_string(position()) + ':' + base58(current().value());
  if (position() > 0) {
    out += ':' + base58(parent_fragment());
  }
  return out;
}

std::optional<LineageHash> LineageHash::parse(std::string_view text) {
  uint32_t position = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, position);
  if (error != std::errc() || after == end || *after != ':') {
    return std::nullopt;
  }
  const std::string_view rest = text.substr(static_cast<size_t>(after - text.data()) + 1);
  const size_t colon = rest.find(':');
  const auto current = read_base58(rest.substr(0, colon));
  const auto parent = colon == std::string_view::npos ? std::optional<uint64_t>(0)
                                                      : read_base58(rest.substr(colon + 1));
  if (!current || !parent || (position == 0) != (colon == std::string_view::npos)) {
    return std::nullopt;
  }
  const auto made = make(position, blocks::SequenceHash(*current), blocks::SequenceHash(*parent));
  return made && made->text() == text ? made : std::nullopt;
}

std::array<std::byte, 16> LineageHash::big_endian() const {
  std::array<std::byte, 16> bytes{};
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::byte>(high_ >> (56 - 8 * i));
    bytes[8 + i] = static_cast<std::byte>(low_ >> (56 - 8 * i));
  }
  return bytes;
}

LineageHash LineageHash::from_big_endian(const std::array<std::byte, 16>& bytes) {
  uint64_t high = 0;
  uint64_t low = 0;
  for (size_t i = 0; i < 8; ++i) {
    high = (high << 8) | std::to_integer<uint64_t>(bytes[i]);
    low = (low << 8) | std::to_integer<uint64_t>(bytes[8 + i]);
  }
  return {high, low};
}

}  // namespace stator::kv
