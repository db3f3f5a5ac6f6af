// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"

namespace stator::engine {

// Who is connected to an engine and what it owes them: one half under the lock of the engine's
// inbox, the other under its own, because a sink may be slow.

/// The live requests of all sessions. A key is live from add() until its last word is in a step,
/// remove(), or the end of its session. Not thread-safe: belongs under the lock of the inbox, so
/// that both tell the same.
class LiveRequests {
 public:
  SessionId open();
  /// With all its requests. False: it is not open.
  bool close(SessionId session);
  /// kNotFound for a closed session, kAlreadyExists for a live key.
  Status add(SessionId session, inference::RequestKey key);
  bool contains(SessionId session, inference::RequestKey key) const;
  /// False: it is not live.
  bool remove(SessionId session, inference::RequestKey key);
  /// Those whose last word is in `step`.
  void remove_ended(SessionId session, const inference::StepOutput& step);
  bool has(SessionId session, inference::RequestKey key) const;
  size_t size() const { return size_; }

 private:
  FlatMap<SessionId, FlatSet<inference::RequestKey>> sessions_;
  size_t size_ = 0;
  uint64_t next_session_ = 1;
};

/// The sinks of open sessions. Thread-safe. A sink is called with the lock held, so that it is not
/// called again once remove() has returned.
class Sinks {
 public:
  /// `sink` outlives its stay here.
  void add(SessionId session, EngineSink& sink);
  void remove(SessionId session);
  /// Drops the step of a session that is gone.
  void deliver(SessionId session, inference::StepOutput step);

 private:
  Mutex mutex_;
  FlatMap<SessionId, EngineSink*> sinks_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::engine
