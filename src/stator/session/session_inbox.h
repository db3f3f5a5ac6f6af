// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/shard.h"
#include "stator/session/session_requests.h"

namespace stator::session {

/// The way from other threads, and from inside calls to a session, to the shard's loop. What a
/// network session reads on the loop itself goes to its SessionRequests at once.
///
///   engine's thread, submit() ── push ──► inbox ── one wake-up ──► deliver (loop) ──► requests()
///
/// C1  Events are delivered in push order (load reports last), on the loop, never inside a call to
///     the session.
/// C2  In the inbox neighbouring steps merge and only the newest load report stays. What else can
///     wait is bounded by the requests in flight.
/// C3  After close() late pushes touch neither the shard nor the metrics, which may be gone by
///     then.
class SessionInbox : public std::enable_shared_from_this<SessionInbox> {
 public:
  SessionInbox(WorkerId worker, net::Shard& shard, SessionEvents& events, SessionMetrics metrics)
      : shard_(shard), requests_(worker, events, metrics) {}
  SessionInbox(const SessionInbox&) = delete;
  SessionInbox& operator=(const SessionInbox&) = delete;
  ~SessionInbox() = default;

  // Any thread.

  void push(SessionEvent event) STATOR_EXCLUDES(mutex_);

  // On the loop.

  net::Shard& shard() const { return shard_; }
  SessionRequests& requests() { return requests_; }
  const SessionMetrics& metrics() const { return requests_.metrics(); }
  /// Nothing is delivered from now on. Idempotent.
  void close() STATOR_EXCLUDES(mutex_);

 private:
  void append(SessionEvent event) STATOR_REQUIRES(mutex_);
  void wake() STATOR_REQUIRES(mutex_);
  void deliver() STATOR_EXCLUDES(mutex_);

  net::Shard& shard_;
  SessionRequests requests_;  // loop only

  struct Inbox {
    std::vector<SessionEvent> events;
    std::optional<engine::LoadReport> load;
  };
  Mutex mutex_;
  Inbox inbox_ STATOR_GUARDED_BY(mutex_);
  bool woken_ STATOR_GUARDED_BY(mutex_) = false;  // deliver() is on its way
  bool shut_ STATOR_GUARDED_BY(mutex_) = false;
};

}  // namespace stator::session
