// SPDX-License-Identifier: Apache-2.0
#include "stator/text/percent.h"

#include "stator/text/hex.h"

namespace stator::text {

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const bool may_be_escape = text[i] == '%' && i + 2 < text.size();
    const uint32_t high = may_be_escape ? hex_value(text[i + 1]) : kNoHexDigit;
    const uint32_t low = may_be_escape ? hex_value(text[i + 2]) : kNoHexDigit;
    if (high != kNoHexDigit && low != kNoHexDigit) {
      out.push_back(static_cast<char>(high * 16 + low));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

}  // namespace stator::text
