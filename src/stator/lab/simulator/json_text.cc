// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/json_text.h"

#include <fmt/format.h>

#include <iterator>

namespace stator::simulator {

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace stator::simulator
