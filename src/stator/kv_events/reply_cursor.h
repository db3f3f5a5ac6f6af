// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "stator/kv/event_log.h"
#include "stator/kv_events/event_cursor.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_wire.h"

namespace stator::kv_events {

/// The parts of a worker's answer to a reader that lost events: what follows, or a dump when the
/// log does not reach back or the reader knows another life. Single-threaded; the log is not.
class ReplyCursor {
 public:
  static constexpr EventCursor::ChunkLimits kPartLimits{.events = kEnvelopeEventsMax,
                                                        .blocks = kEnvelopeBlocksMax};

  /// From event `start` on; 0: a dump. `first_part` numbers the first one.
  ReplyCursor(const kv::EventLog& log, WorkerId worker, Incarnation incarnation, uint64_t start,
              uint32_t first_part = 0);
  /// Where `query` wants the answer to begin.
  static uint64_t start_of(const EventQuery& query, Incarnation incarnation) {
    return query.incarnation == incarnation ? query.start_event_id : 0;
  }

  /// Nothing: the last part has been given. There is always one.
  std::optional<EventReply> next();

 private:
  EventCursor cursor_;
  const WorkerId worker_;
  const Incarnation incarnation_;
  uint64_t last_id_;
  uint32_t part_;
  std::optional<EventsChunk> chunk_;
  bool over_ = false;
};

}  // namespace stator::kv_events
