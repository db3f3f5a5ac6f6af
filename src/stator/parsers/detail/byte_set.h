// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace stator::parsers {

/// A few bytes among 256: one load tells whether one is of them, where searching a string for it
/// costs a call.
class ByteSet {
 public:
  constexpr explicit ByteSet(std::string_view bytes) {
    for (const char c : bytes) {
      has_[static_cast<unsigned char>(c)] = true;
    }
  }
  /// And the bytes from `first` to `last`, both included.
  constexpr ByteSet with(unsigned char first, unsigned char last) const {
    ByteSet more = *this;
    for (size_t c = first; c <= last; ++c) {
      more.has_[c] = true;
    }
    return more;
  }

  constexpr bool contains(char c) const { return has_[static_cast<unsigned char>(c)]; }

  /// Where the first byte stands that is (not) of the set; the text's size if there is none.
  constexpr size_t find_in(std::string_view text, size_t from = 0) const {
    while (from < text.size() && !contains(text[from])) {
      ++from;
    }
    return from;
  }
  constexpr size_t skip_in(std::string_view text, size_t from = 0) const {
    while (from < text.size() && contains(text[from])) {
      ++from;
    }
    return from;
  }

 private:
  std::array<bool, 256> has_{};
};

}  // namespace stator::parsers
