// SPDX-License-Identifier: Apache-2.0
// Any bytes a peer may send: decoding never crashes, and what it accepts is accepted again. The
// first byte chooses the message.
#include <cstddef>
#include <cstdint>

#include "stator/core/assert.h"
#include "stator/kv_events/event_wire.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/wire.h"

namespace {

namespace pb = stator::worker::v1;
using stator::kv_events::decode;
using stator::kv_events::encode;
using stator::session::wire::decode;
using stator::session::wire::encode;

template <typename Message>
void check(const void* data, int size) {
  Message message;
  if (!message.ParseFromArray(data, size)) {
    return;
  }
  const auto decoded = decode(message);
  if (!decoded.has_value()) {
    return;
  }
  Message again;
  encode(*decoded, again);
  const auto twice = decode(again);
  STATOR_ASSERT(twice.has_value(), "what was accepted is accepted again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const void* rest = data + 1;
  const int count = static_cast<int>(size - 1);
  switch (data[0] % 5) {
    case 0:
      check<pb::Submit>(rest, count);
      break;
    case 1:
      check<pb::Cancel>(rest, count);
      break;
    case 2:
      check<pb::Rejected>(rest, count);
      break;
    case 3:
      check<pb::StepOutput>(rest, count);
      break;
    default:
      check<pb::EventBatch>(rest, count);
      break;
  }
  return 0;
}
