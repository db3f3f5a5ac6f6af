// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>

#include "stator/storage/keep_request.h"

/// Whoever may open the keeper's socket sends packets.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto packet = std::as_bytes(std::span(data, size));
  const auto request = stator::storage::decode_keep_request(packet);
  if (request && encode(*request) != std::string(reinterpret_cast<const char*>(data), size)) {
    std::abort();
  }
  return 0;
}
