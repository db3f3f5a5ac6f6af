// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/transfer/types.h"

namespace stator::transfer {

/// One frame's head on a TCP connection between agents: 64 bytes little-endian, then `len` bytes of
/// payload for the types that have one.
///
///    0 magic 'SXF1' u32   4 type u8   5 flags u8 (1: last segment)   6 CRC of the head, low 16
///    bits 8 request u64       16 segment u32   20 segments u32   24 key [16]
///   40 address u64       48 length u32    52 CRC-32C of the payload   56 epoch u64
struct Frame {
  static constexpr size_t kBytes = 64;
  static constexpr uint32_t kSegmentMax = 1U << 20;  ///< payload of one frame
  enum class Type : uint8_t {
    kHello = 1,  ///< payload: the agent's name; epoch: the life of the other that is meant
    kReadRequest = 2,
    kReadData = 3,
    kWrite = 4,
    kAck = 5,
    kNotify = 6,  ///< payload: the message
    kPing = 7,
    kError = 8,  ///< address: an Outcome; the connection closes
  };
  static constexpr uint8_t kLast = 1;

  Type type = Type::kPing;
  uint8_t flags = 0;
  uint64_t request = 0;
  uint32_t segment = 0;
  uint32_t segments = 0;
  RemoteKey key{};
  uint64_t addr = 0;
  uint32_t len = 0;
  uint32_t payload_crc = 0;
  uint64_t epoch = 0;
  friend bool operator==(const Frame&, const Frame&) = default;

  bool has_payload() const {
    return type == Type::kHello || type == Type::kReadData || type == Type::kWrite ||
           type == Type::kNotify;
  }
};

std::array<std::byte, Frame::kBytes> encode(const Frame& frame);
/// Nothing for a head that encode() did not write.
std::optional<Frame> decode_frame(std::span<const std::byte> bytes);

/// Metadata as bytes, and back: kCorrupt for anything malformed.
std::string encode(const Metadata& metadata);
Result<Metadata> decode_metadata(std::string_view bytes);

}  // namespace stator::transfer
