// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "stator/core/ids.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/event_follower.h"
#include "stator/kv_events/event_wire.h"

namespace stator::kv_events {

/// One reader's way through an EventLog, in chunks small enough for a message. Single-threaded; the
/// log is not.
class EventCursor {
 public:
  static constexpr size_t kChunkEvents = 512;
  static constexpr size_t kChunkBlocks = 64 * 1024;  // 1 MiB on the wire

  struct ChunkLimits {
    size_t events = kChunkEvents;
    size_t blocks = kChunkBlocks;
  };

  /// `from_id` 0: a snapshot first, then what follows it.
  EventCursor(const kv::EventLog& log, Incarnation incarnation, uint64_t from_id)
      : EventCursor(log, incarnation, from_id, ChunkLimits{}) {}
  EventCursor(const kv::EventLog& log, Incarnation incarnation, uint64_t from_id,
              ChunkLimits limits)
      : log_(log), incarnation_(incarnation), next_id_(from_id), limits_(limits) {}

  /// Nothing: all has been read. An event of more blocks than the limit is a chunk of its own.
  std::optional<EventsChunk> next();

 private:
  EventsChunk next_of_snapshot();
  void take_snapshot();

  const kv::EventLog& log_;
  const Incarnation incarnation_;
  uint64_t next_id_;
  const ChunkLimits limits_;
  std::deque<EventsChunk> snapshot_;  // parts still to hand out
};

/// The other end: puts chunks together again and tells a listener. On the listener's loop.
class EventAssembler {
 public:
  EventAssembler(WorkerId worker, KvEventsListener& listener)
      : worker_(worker), listener_(listener) {}

  /// kCorrupt when events do not continue what came before: start over from `resume_from`. A
  /// snapshot of more than kSnapshotBlocksMax blocks is kTooLarge.
  Status take(EventsChunk chunk);

  /// What to ask a stream for, so that nothing is lost or repeated.
  uint64_t resume_from() const { return synced_ ? last_id_ + 1 : 0; }
  Incarnation incarnation() const { return incarnation_; }
  uint64_t last_id() const { return last_id_; }
  /// A stream was lost: parts of an unfinished snapshot are of no use.
  void interrupted();

  static constexpr size_t kSnapshotBlocksMax = size_t{16} * 1024 * 1024;

 private:
  Status take_snapshot_part(EventsChunk chunk);
  Status take_events(EventsChunk chunk);

  const WorkerId worker_;
  KvEventsListener& listener_;
  Incarnation incarnation_;
  bool synced_ = false;
  uint64_t last_id_ = 0;
  std::vector<kv::KvEvent> parts_;
  size_t part_blocks_ = 0;
};

}  // namespace stator::kv_events
