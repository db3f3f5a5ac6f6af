// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/plane_cursor.h"

#include <utility>

namespace stator::kv_events {

PlaneCursor::Query PlaneCursor::ask() {
  assembler_.interrupted();
  asking_ = true;
  broken_ = false;
  next_part_ = 0;
  return {++number_, {worker_, 0, assembler_.incarnation(), assembler_.resume_from()}};
}

bool PlaneCursor::is_missing_before(const EventEnvelope& message) const {
  const uint64_t next = assembler_.resume_from();
  if (message.incarnation != assembler_.incarnation() || next == 0) {
    return true;
  }
  return message.last_event_id >= next && message.last_event_id - message.events.size() >= next;
}

/// Those that are new; false if they do not continue what is known.
bool PlaneCursor::take(Incarnation incarnation, uint64_t last_id, std::vector<kv::KvEvent> events) {
  const uint64_t next = assembler_.resume_from();
  if (last_id < next) {
    return true;
  }
  const uint64_t new_events = last_id - next + 1;
  if (next == 0 || new_events > events.size()) {
    return false;
  }
  events.erase(events.begin(), events.end() - static_cast<ptrdiff_t>(new_events));
  return assembler_.take({incarnation, EventsChunk::Kind::kEvents, last_id, std::move(events)})
      .has_value();
}

std::optional<PlaneCursor::Query> PlaneCursor::on_message(EventEnvelope message) {
  if (message.incarnation < assembler_.incarnation()) {
    return std::nullopt;  // an earlier life that still speaks
  }
  if (asking_) {
    if (waiting_.size() < kWaitingMax) {
      waiting_.push_back(std::move(message));
    }
    return std::nullopt;
  }
  waiting_.push_back(std::move(message));
  return drain();
}

std::optional<PlaneCursor::Query> PlaneCursor::drain() {
  while (!waiting_.empty()) {
    EventEnvelope& first = waiting_.front();
    if (is_missing_before(first)) {
      return ask();
    }
    EventEnvelope message = std::move(first);
    waiting_.pop_front();
    if (!take(message.incarnation, message.last_event_id, std::move(message.events))) {
      return ask();
    }
  }
  return std::nullopt;
}

std::optional<PlaneCursor::Query> PlaneCursor::on_reply(uint64_t number, EventReply reply) {
  using Kind = EventReply::Kind;
  if (!asking_ || number != number_ || broken_) {
    return std::nullopt;
  }
  if (reply.part != next_part_++ || reply.kind == Kind::kError ||
      reply.incarnation < assembler_.incarnation()) {
    broken_ = true;
    return std::nullopt;
  }
  const bool brought_something = reply.kind == Kind::kTreeDump || !reply.events.empty();
  if (reply.kind == Kind::kTreeDump) {
    const auto kind = reply.last ? EventsChunk::Kind::kSnapshotLast : EventsChunk::Kind::kSnapshot;
    broken_ =
        !assembler_.take({reply.incarnation, kind, reply.last_event_id, std::move(reply.events)})
             .has_value();
  } else if (!reply.events.empty()) {
    broken_ = !take(reply.incarnation, reply.last_event_id, std::move(reply.events));
  }
  if (!reply.last || broken_) {
    return std::nullopt;
  }
  asking_ = false;
  if (!brought_something) {
    waiting_.clear();  // claims that the worker denies; should one be newer, the next message tells
  }
  std::erase_if(waiting_, [&](const auto& message) {
    return message.incarnation < assembler_.incarnation();
  });
  return drain();
}

}  // namespace stator::kv_events
