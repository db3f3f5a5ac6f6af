// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "stator/core/ids.h"
#include "stator/kv_events/event_cursor.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_follower.h"

namespace stator::kv_events {

/// Follows one worker's events through a broker that may lose, repeat and delay messages: sees what
/// is missing, asks the worker for it, and tells a listener as an EventFollower must. Pure.
///
///           start                  last part, nothing missing
///   ────────────────► asking ───────────────────────────────► live
///                        ▲                                      │
///                        └─── gap, another life, bad message ◄──┘
///
/// The listener hears each event once and in order, or a snapshot. Messages that come while it asks
/// wait, at most kWaitingMax of them; what does not fit is missing later and asked for again.
class PlaneCursor {
 public:
  static constexpr size_t kWaitingMax = 1024;

  PlaneCursor(WorkerId worker, KvEventsListener& listener)
      : worker_(worker), assembler_(worker, listener) {}

  /// What to ask the worker: `number` comes back with the answers.
  struct Query {
    uint64_t number = 0;
    EventQuery query;
  };

  /// Asks for everything.
  Query start() { return ask(); }
  std::optional<Query> on_message(EventEnvelope message);
  /// Answers to older questions are ignored. An error or a hole leads to a Query only by
  /// `on_timeout`, so that a worker that cannot answer is not asked in a circle.
  std::optional<Query> on_reply(uint64_t number, EventReply reply);
  /// No answer for a while.
  Query on_timeout() { return ask(); }

  bool asking() const { return asking_; }
  size_t waiting() const { return waiting_.size(); }
  uint64_t last_id() const { return assembler_.last_id(); }

 private:
  Query ask();
  bool is_missing_before(const EventEnvelope& message) const;
  bool take(Incarnation incarnation, uint64_t last_id, std::vector<kv::KvEvent> events);
  std::optional<Query> drain();

  const WorkerId worker_;
  EventAssembler assembler_;
  bool asking_ = false;
  bool broken_ = false;  // this answer has a hole: wait for the timeout
  uint64_t number_ = 0;
  uint32_t next_part_ = 0;
  std::deque<EventEnvelope> waiting_;
};

}  // namespace stator::kv_events
