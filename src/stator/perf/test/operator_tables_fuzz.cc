// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/perf/operator_tables.h"

// Any bytes are an error, or tables that are written and read back the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::perf;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tables = OperatorTables::parse(bytes);
  if (!tables) {
    return 0;
  }
  const auto again = OperatorTables::parse((*tables)->save());
  STATOR_ASSERT(again.has_value(), "what was written is read");
  for (size_t i = 0; i < kOperatorTables; ++i) {
    const auto table = static_cast<OperatorTable>(i);
    STATOR_ASSERT((*again)->rows(table).size() == (*tables)->rows(table).size(), "row by row");
  }
  return 0;
}
