// SPDX-License-Identifier: Apache-2.0
// Any bytes that a broker may have as the snapshot of the workers' events: reading never crashes,
// and what it accepts is written to what it reads again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kv_events/detail/durable_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using stator::kv_events::detail::DurableState;
  const auto state =
      DurableState::decode(std::string_view(reinterpret_cast<const char*>(data), size));
  if (state.has_value()) {
    const auto again = DurableState::decode(state->encode());
    STATOR_ASSERT(again.has_value() && again->watermark() == state->watermark() &&
                      again->workers() == state->workers(),
                  "what was accepted is accepted again");
  }
  return 0;
}
