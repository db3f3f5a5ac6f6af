// SPDX-License-Identifier: Apache-2.0
// Any bytes a broker may deliver: reading never crashes, and what it accepts is accepted again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kv_events/forward_pass_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using stator::kv_events::decode_forward_pass;
  const auto message =
      decode_forward_pass(std::string_view(reinterpret_cast<const char*>(data), size));
  if (message.has_value()) {
    const auto again = decode_forward_pass(encode(*message));
    STATOR_ASSERT(again.has_value() && *again == *message, "what was accepted is accepted again");
  }
  return 0;
}
