// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"

namespace stator::worker::v1 {
class EventBatch;
}  // namespace stator::worker::v1

namespace stator::kv_events {

/// Part of the Events stream.
struct EventsChunk {
  enum class Kind : uint8_t { kEvents, kSnapshot, kSnapshotLast };
  Incarnation incarnation;
  Kind kind = Kind::kEvents;
  uint64_t last_id = 0;
  std::vector<kv::KvEvent> events;
};
/// decode trusts nothing: what it returns is consistent in itself, everything else is kCorrupt with
/// the field's name. decode(encode(x)) == x.
void encode(const EventsChunk& chunk, worker::v1::EventBatch& out);
Result<EventsChunk> decode(const worker::v1::EventBatch& in);

}  // namespace stator::kv_events
