// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"

// Our KV events as they travel over a broker: named MessagePack maps with the field names that
// Dynamo's routers use, so that theirs and ours read each other. Pure; `decode` trusts nothing.

namespace stator::kv_events {

/// What a producer puts into one message, unless a single event is larger.
inline constexpr size_t kEnvelopeEventsMax = 128;
inline constexpr size_t kEnvelopeBlocksMax = 8192;

/// One message of a worker to all who follow it. Without events it is a heartbeat: `last_event_id`
/// lets a reader see that it lost the newest ones.
struct EventEnvelope {
  WorkerId publisher;
  Incarnation incarnation;  ///< 0: a publisher that does not tell its life
  uint64_t sequence = 0;    ///< of this publisher's messages, from 0
  int64_t published_at_ms = 0;
  uint64_t last_event_id = 0;  ///< of `events`, or of the newest event if there are none
  std::vector<kv::KvEvent> events;
  friend bool operator==(const EventEnvelope&, const EventEnvelope&) = default;
};
std::string encode(const EventEnvelope& envelope);
/// kCorrupt when it cannot be read, when an event belongs to another worker, or when ids are not
/// dense. Events without an id that we know (no `last_event_id`) take it from the last event.
Result<EventEnvelope> decode_envelope(std::string_view bytes);

/// Asks a worker for what a reader lacks.
struct EventQuery {
  WorkerId worker;
  uint32_t dp_rank = 0;
  Incarnation incarnation;      ///< whose events the reader knows; of another life: a dump
  uint64_t start_event_id = 0;  ///< 0: everything, as a dump
  friend bool operator==(const EventQuery&, const EventQuery&) = default;
};
std::string encode(const EventQuery& query);
Result<EventQuery> decode_query(std::string_view bytes);

/// One part of the answer. A dump's events are stores with id 0, parents before children.
struct EventReply {
  enum class Kind : uint8_t { kEvents, kTreeDump, kError };
  Kind kind = Kind::kEvents;
  WorkerId worker;
  Incarnation incarnation;
  uint32_t part = 0;  ///< from 0
  bool last = false;
  uint64_t last_event_id = 0;
  std::vector<kv::KvEvent> events;
  std::string message;  ///< of an error
  friend bool operator==(const EventReply&, const EventReply&) = default;
};
std::string encode(const EventReply& reply);
Result<EventReply> decode_reply(std::string_view bytes);

/// Blocks that an event names.
size_t block_count(const kv::KvEvent& event);

}  // namespace stator::kv_events
