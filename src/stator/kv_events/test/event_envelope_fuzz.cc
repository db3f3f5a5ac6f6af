// SPDX-License-Identifier: Apache-2.0
// Any bytes a broker may bring: decoding never crashes, and what it accepts encodes to what it
// decodes to again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kv_events/event_envelope.h"

namespace {

template <typename Value>
void check(const stator::Result<Value>& decoded,
           stator::Result<Value> (*decode)(std::string_view)) {
  if (decoded.has_value()) {
    const auto again = decode(encode(*decoded));
    STATOR_ASSERT(again.has_value() && *again == *decoded, "what was accepted is accepted again");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::kv_events;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(decode_envelope(bytes), decode_envelope);
  check(decode_query(bytes), decode_query);
  check(decode_reply(bytes), decode_reply);
  return 0;
}
