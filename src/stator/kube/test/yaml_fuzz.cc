// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"

/// What is read is written and read back the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto documents =
      stator::kube::parse_yaml(text, "fuzz", {.depth_max = 32, .values_max = 10'000});
  if (documents) {
    for (const stator::json::Value& document : *documents) {
      const auto back = stator::kube::parse_yaml(stator::kube::to_yaml(document), "again");
      STATOR_ASSERT(back.has_value(), "what we write is YAML");
    }
  }
  return 0;
}
