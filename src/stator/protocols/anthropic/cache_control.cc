// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/cache_control.h"

#include <string>

namespace stator::protocols::anthropic {

uint32_t read_cache_control(api::FieldReader& in, const api::Path& path) {
  constexpr uint32_t kShort = 300;
  constexpr uint32_t kLong = 3600;
  std::string type;
  std::string ttl = "5m";
  const bool present = in.object(path, [&](std::string_view key, const api::Path& member) {
    if (key == "type") {
      type = in.string(member).value_or("");
    } else if (key == "ttl") {
      ttl = in.string(member).value_or("5m");
    } else {
      in.skip();
    }
  });
  if (!present) {
    return 0;
  }
  if (type != "ephemeral") {
    in.violation(api::Path(path, "type"), "must be ephemeral");
  }
  if (ttl != "5m" && ttl != "1h") {
    in.violation(api::Path(path, "ttl"), "must be 5m or 1h");
  }
  return ttl == "1h" ? kLong : kShort;
}

}  // namespace stator::protocols::anthropic
