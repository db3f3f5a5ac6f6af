// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/core/ids.h"
#include "stator/kv/event.h"

namespace stator::kv_events {

/// Told which KV blocks a worker has. Calls come on the loop the follower was given, in order.
class KvEventsListener {
 public:
  virtual ~KvEventsListener() = default;
  /// Forget everything about `worker`; it holds exactly `blocks` now (BlocksStored only, event_id
  /// 0, parents before children). Also called, with nothing, when a new life of the worker begins.
  virtual void on_snapshot(WorkerId worker, std::vector<kv::KvEvent> blocks) = 0;
  /// The next events; ids are dense per (incarnation, rank) and continue what came before.
  virtual void on_events(WorkerId worker, std::vector<kv::KvEvent> events) = 0;
};

/// Follows one worker's KV events until destroyed, after which the listener is not called again.
/// Reconnects by itself, for ever, with back-off; resumes without loss, by snapshot where it must.
/// Destroy it on its loop.
class EventFollower {
 public:
  virtual ~EventFollower() = default;
  /// Id of the newest event delivered. On the loop.
  virtual uint64_t last_id() const = 0;
};

}  // namespace stator::kv_events
