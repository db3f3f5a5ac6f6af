// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace stator::io {

/// Reads a file of records up to the first that is damaged or cut off: `take` gets what is left of
/// it and gives the length of the whole record in front, or 0. Gives how many bytes were good.
template <typename Take>
size_t read_records(std::string_view bytes, const Take& take) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t length = take(bytes.substr(at));
    if (length == 0 || length > bytes.size() - at) {
      break;
    }
    at += length;
  }
  return at;
}

}  // namespace stator::io
