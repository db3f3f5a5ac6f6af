// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/json/value.h"

// Any bytes are an error, or a value that is written and read back the same, in both spellings.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = json::parse(text, {.depth_max = 32, .values_max = 10'000});
  if (!value.has_value()) {
    return 0;
  }
  const auto again = json::parse(json::to_text(*value));
  STATOR_ASSERT(again.has_value() && *again == *value, "nothing is lost in one line");
  const auto pretty = json::parse(json::to_pretty_text(*value));
  STATOR_ASSERT(pretty.has_value() && *pretty == *value, "nothing is lost in many lines");
  return 0;
}
