// SPDX-License-Identifier: Apache-2.0
// Files for `stator doctor --from-dynamo`: any bytes give variables that are named once, and flags.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/app/dynamo_source.h"
#include "stator/core/assert.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const stator::app::DynamoSource source =
      stator::app::read_dynamo_source(std::string_view(reinterpret_cast<const char*>(data), size));
  for (size_t i = 0; i < source.variables.size(); ++i) {
    STATOR_ASSERT(!source.variables[i].name.empty(), "a variable has a name");
    STATOR_ASSERT(i == 0 || source.variables[i - 1].name < source.variables[i].name,
                  "by name, each once");
  }
  for (const stator::app::DynamoFlag& flag : source.flags) {
    STATOR_ASSERT(flag.flag.starts_with("--"), "a flag begins with two dashes");
  }
  return 0;
}
