// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/reply_cursor.h"

#include <utility>

namespace stator::kv_events {

ReplyCursor::ReplyCursor(const kv::EventLog& log, WorkerId worker, Incarnation incarnation,
                         uint64_t start, uint32_t first_part)
    : cursor_(log, incarnation, start, kPartLimits),
      worker_(worker),
      incarnation_(incarnation),
      last_id_(start - 1),
      part_(first_part),
      chunk_(cursor_.next()) {}

std::optional<EventReply> ReplyCursor::next() {
  using Kind = EventsChunk::Kind;
  if (over_) {
    return std::nullopt;
  }
  EventReply reply{
      .worker = worker_, .incarnation = incarnation_, .part = part_++, .last_event_id = last_id_};
  if (chunk_) {
    const bool ends = chunk_->kind == Kind::kSnapshotLast;
    reply.kind =
        chunk_->kind == Kind::kEvents ? EventReply::Kind::kEvents : EventReply::Kind::kTreeDump;
    last_id_ = reply.last_event_id = chunk_->last_id;
    reply.events = std::move(chunk_->events);
    chunk_ = ends ? std::nullopt : cursor_.next();
  }
  over_ = reply.last = !chunk_;
  return reply;
}

}  // namespace stator::kv_events
