// SPDX-License-Identifier: Apache-2.0
// Any text a discovery store may hold: reading never crashes, and what it accepts is written to
// what it reads again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/discovery/instance_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::discovery;
  const auto record =
      parse_instance_record(std::string_view(reinterpret_cast<const char*>(data), size));
  if (record.has_value()) {
    const std::string written = to_json(*record);
    // Defaults and escapes make it longer.
    if (written.size() <= kRecordBytesMax) {
      const auto again = parse_instance_record(written);
      STATOR_ASSERT(again.has_value() && *again == *record, "what was accepted is accepted again");
    }
  }
  return 0;
}
