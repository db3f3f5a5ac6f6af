// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "stator/tokenizer/ascii_masks.h"
#include "stator/tokenizer/scanner.h"

namespace stator::tokenizer {

/// scan_piece for many pieces at once: ASCII text is classified 64 bytes at a time and the borders
/// come out of a few operations on the bit masks, about 3 cycles per piece; the rest goes through
/// scan_piece. Every block starts where a piece does, so nothing is carried from one to the next.
class PieceScanner {
 public:
  /// `scan` finds at most this many pieces in one block.
  static constexpr size_t kEndsMin = 64;

  explicit PieceScanner(ScannerFamily family, SimdLevel level = simd_level());

  /// Finds the pieces of `text` (valid UTF-8, under 4 GiB) from `at` on, which is where a piece
  /// starts, until the text ends or `ends`, of at least kEndsMin, is nearly full. Writes where they
  /// end, moves `at` to the last end and returns how many there are: at least one if `at` was in
  /// the text.
  size_t scan(std::string_view text, size_t& at, std::span<uint32_t> ends) const;

 private:
  /// Where pieces start in a block of text that begins with a piece, as far as the block tells for
  /// certain. Bit 0 is not set.
  using FindStarts = uint64_t (*)(const AsciiMasks& masks, const char* text);
  static FindStarts starts_of(ScannerFamily family);

  ScannerFamily family_;
  uint32_t letters_;  // UnicodeClass bits
  ClassifyAscii classify_;
  FindStarts find_starts_;
};

}  // namespace stator::tokenizer
