// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>

#include "stator/connectors/lmcache_wire.h"

/// Heads come from whoever reaches the port.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto request = stator::connectors::decode_lm_request(
      bytes.first(std::min(bytes.size(), stator::connectors::LmRequest::kBytes)), 1 << 20);
  if (request && (request->meta.length < 0 || request->meta.length > 1 << 20)) {
    __builtin_trap();
  }
  return 0;
}
