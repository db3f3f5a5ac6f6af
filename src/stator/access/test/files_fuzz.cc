// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/access/key_table.h"
#include "stator/access/tenants.h"
#include "stator/core/assert.h"

/// Files of keys and tenants.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto keys = access::KeyTable::parse(text)) {
    STATOR_ASSERT(keys->find("sk-stator-nobody").entry == nullptr || keys->size() > 0, "found");
  }
  if (const auto tenants = access::TenantTable::parse(text)) {
    STATOR_ASSERT(tenants->find("x").weight > 0, "a weight divides");
  }
  return 0;
}
