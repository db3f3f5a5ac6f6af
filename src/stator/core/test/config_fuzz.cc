// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/core/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint16_t port = 0;
  stator::Duration timeout{};
  uint64_t bytes = 0;
  std::string mode = "kv";
  stator::ConfigSchema schema;
  schema.integer("http.port", port, 0, 65535, "port");
  schema.duration("http.timeout", timeout, "timeout");
  schema.bytes("http.body_bytes_max", bytes, "body");
  schema.choice("router.mode", mode, {"kv", "random"}, "mode");
  schema.load_yaml(std::string_view(reinterpret_cast<const char*>(data), size)).ignore("fuzzing");
  return 0;
}
