// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "stator/core/metrics.h"
#include "stator/kv_events/event_cursor.h"
#include "stator/kv_events/event_follower.h"
#include "stator/net/backoff.h"
#include "stator/net/shard.h"

namespace stator::kv_events {

/// Hears about one stream of KV events, on the loop.
class EventsStreamOwner {
 public:
  virtual ~EventsStreamOwner() = default;
  /// An error: the owner does not want what follows; on_ended comes all the same.
  virtual Status on_chunk(EventsChunk chunk) = 0;
  /// Last.
  virtual void on_ended(std::string reason) = 0;
};

/// A stream that is being read. Destroyed on the loop; its owner is not called after that.
class EventsStream {
 public:
  virtual ~EventsStream() = default;
};

/// Follows a worker's KV events over whatever carries them: opens a stream, puts chunks together,
/// opens the next one when it ends. On the listener's loop.
class StreamFollower final : public EventFollower, public EventsStreamOwner {
 public:
  using Open = std::function<std::unique_ptr<EventsStream>(Incarnation incarnation,
                                                           uint64_t from_id, EventsStreamOwner&)>;
  struct Setup {
    WorkerId worker;
    Open open;
    Counter reconnects;
    Counter rejected_messages;
  };
  StreamFollower(Setup setup, net::Shard& shard, KvEventsListener& listener);

  uint64_t last_id() const override { return assembler_.last_id(); }
  Status on_chunk(EventsChunk chunk) override;
  void on_ended(std::string reason) override;

 private:
  static constexpr Duration kBackoffMin = std::chrono::milliseconds(50);
  static constexpr Duration kBackoffMax = std::chrono::seconds(5);

  void connect();

  const Setup setup_;
  net::Shard& shard_;
  EventAssembler assembler_;
  net::Backoff backoff_{kBackoffMin, kBackoffMax};
  std::unique_ptr<EventsStream> stream_;
  net::Timer retry_;
};

}  // namespace stator::kv_events
