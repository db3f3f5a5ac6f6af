// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace stator::tokenizer {

/// The classes of 64 bytes of text, one bit per byte, the first byte lowest. Bytes from 0x80 on are
/// in `other` only.
struct AsciiMasks {
  uint64_t letter;
  uint64_t capital;
  uint64_t digit;
  uint64_t space;    ///< white space: ' ' and U+0009 … U+000D
  uint64_t newline;  ///< CR and LF
  uint64_t blank;    ///< ' ' only
  uint64_t quote;    ///< '\''
  uint64_t control;  ///< control characters that are not white space
  uint64_t other;    ///< not ASCII
  bool operator==(const AsciiMasks&) const = default;
};

inline constexpr size_t kMaskBytes = 64;

/// Instruction sets that classification is written for.
enum class SimdLevel : uint8_t { kPortable, kSse2, kAvx2, kAvx512 };

/// The widest that this machine has; asked once.
SimdLevel simd_level();

/// Classifies the kMaskBytes bytes at `text`. All levels give the same; the machine must have it.
using ClassifyAscii = void (*)(const char* text, AsciiMasks& masks);
ClassifyAscii ascii_classifier(SimdLevel level);

}  // namespace stator::tokenizer
