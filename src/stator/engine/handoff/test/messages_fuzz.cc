// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/engine/handoff/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace handoff = stator::engine::handoff;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  handoff::decode_invitation(bytes).ignore("fuzzing");
  if (const auto message = handoff::decode_message(bytes)) {
    STATOR_ASSERT(encode(*message) == bytes, "what was read is written the same");
  }
  return 0;
}
