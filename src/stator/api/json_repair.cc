// SPDX-License-Identifier: Apache-2.0
#include "stator/api/detail/json_repair.h"

#include "stator/json/writer.h"

namespace stator::api {

std::optional<std::string> escape_control_bytes(std::string_view text) {
  std::string out;
  size_t copied = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (byte == '"') {
      in_string = !in_string;
    } else if (byte == '\\' && in_string) {
      ++at;  // whatever is escaped, even a quote, does not end the string
    } else if (in_string && static_cast<unsigned char>(byte) < 0x20) {
      out.append(text.substr(copied, at - copied));
      json::append_escaped(out, text.substr(at, 1));
      copied = at + 1;
    }
  }
  if (copied == 0) {
    return std::nullopt;
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace stator::api
