// SPDX-License-Identifier: Apache-2.0
// Any bytes a replica may send: decoding never crashes, and what it accepts is accepted again.
#include <cstddef>
#include <cstdint>

#include "stator/core/assert.h"
#include "stator/proto/router/v1/replica.pb.h"
#include "stator/router/replicas/replica_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stator::router::v1::PullResponse message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) {
    return 0;
  }
  const auto decoded = stator::router::decode(message);
  if (!decoded.has_value()) {
    return 0;
  }
  stator::router::v1::PullResponse again;
  stator::router::encode(*decoded, again);
  STATOR_ASSERT(stator::router::decode(again).has_value(), "what was accepted is accepted again");
  return 0;
}
