// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace stator::tokenizer {

/// A piece of 1 to 15 bytes as two words: nine of ten pieces are that short, and words are compared
/// and hashed without a loop or a branch.
struct PieceKey {
  uint64_t low;   ///< bytes 0 … 7
  uint64_t high;  ///< bytes 8 … 14, and the length in the highest byte: 0 for no piece

  static constexpr size_t kBytesMax = 15;
  /// Bytes that `read` touches, whatever the length.
  static constexpr size_t kReadBytes = 16;
  static constexpr int kBytesShift = 56;

  /// The first `bytes` of the kReadBytes that can be read at `piece`.
  static PieceKey read(const char* piece, size_t bytes) {
    uint64_t words[2];
    std::memcpy(words, piece, sizeof(words));
    return {words[0] & kMasks[bytes].low,
            (words[1] & kMasks[bytes].high) | (static_cast<uint64_t>(bytes) << kBytesShift)};
  }

  /// The same for a piece anywhere in memory.
  static PieceKey of(std::string_view piece) {
    char bytes[kReadBytes] = {};
    std::memcpy(bytes, piece.data(), piece.size());
    return read(bytes, piece.size());
  }

  size_t bytes() const { return static_cast<size_t>(high >> kBytesShift); }

  /// The highest bits are the best ones: they depend on all bytes.
  uint64_t hash() const { return (low * 0x9E3779B97F4A7C15ULL) ^ (high * 0xD6E8FEB86659FD93ULL); }

  bool operator==(const PieceKey&) const = default;

 private:
  struct Masks {
    uint64_t low;
    uint64_t high;
  };
  static constexpr std::array<Masks, kBytesMax + 1> kMasks = [] {
    std::array<Masks, kBytesMax + 1> masks{};
    for (size_t bytes = 1; bytes <= kBytesMax; ++bytes) {
      masks[bytes].low = UINT64_MAX >> (bytes < 8 ? 64 - 8 * bytes : 0);
      masks[bytes].high = bytes > 8 ? UINT64_MAX >> (128 - 8 * bytes) : 0;
    }
    return masks;
  }();
};

}  // namespace stator::tokenizer
