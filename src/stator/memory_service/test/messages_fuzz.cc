// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/memory_service/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto message = stator::memory_service::decode_message(
      std::string_view(reinterpret_cast<const char*>(data), size));
  if (message) {
    static_cast<void>(stator::memory_service::encode(*message));
  }
  return 0;
}
