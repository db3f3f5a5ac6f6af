// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/net/shard.h"
#include "stator/session/session_metrics.h"
#include "stator/session/worker_session.h"

namespace stator::session {

struct SessionOpened {};
struct SessionAccepted {
  inference::RequestKey key;
};
struct SessionRejected {
  inference::Failure failure;
};
struct SessionDraining {};
struct SessionClosed {
  Error error;
};
/// What the far side said, in the order it said it.
using SessionEvent = std::variant<SessionOpened, SessionAccepted, SessionRejected,
                                  inference::StepOutput, SessionDraining, SessionClosed>;

/// What both session kinds share: the way from foreign threads to the shard's loop, and the
/// bookkeeping that makes S1 to S3 of WorkerSession true whatever the far side does.
///
///   engine's thread or loop ── push ──► inbox ── one wake-up ──► deliver (loop) ──► SessionEvents
///
/// C1  Events are delivered in push order (load reports last), on the loop, never inside a call to
///     the session.
/// C2  In the inbox neighbouring steps merge and only the newest load report stays. What else can
///     wait is bounded by the requests in flight; bytes of steps by who pushes: a session over a
///     network reads at the loop's pace.
/// C3  After `close` or SessionClosed nothing is delivered, and late pushes touch neither the shard
///     nor the metrics, which may be gone by then.
class SessionCore : public std::enable_shared_from_this<SessionCore> {
 public:
  SessionCore(WorkerId worker, net::Shard& shard, SessionEvents& events, SessionMetrics metrics);
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;
  ~SessionCore() = default;

  // Any thread.

  void push(SessionEvent event) STATOR_EXCLUDES(mutex_);
  void push_load(const engine::LoadReport& load) STATOR_EXCLUDES(mutex_);

  // On the loop.

  WorkerId worker() const { return worker_; }
  net::Shard& shard() const { return shard_; }
  const SessionMetrics& metrics() const { return metrics_; }
  bool open() const { return events_ != nullptr; }
  /// A request goes out. Asserts that its key is not in flight.
  void begin(inference::RequestKey key);
  /// The request is withdrawn; what still comes for it is dropped. False if it was not in flight.
  bool forget(inference::RequestKey key);
  size_t in_flight() const { return in_flight_.size(); }
  /// Nothing is delivered from now on. Idempotent.
  void close();

 private:
  enum class KeyState : uint8_t { kSubmitted, kAccepted };

  void append(SessionEvent event) STATOR_REQUIRES(mutex_);
  void wake() STATOR_REQUIRES(mutex_);
  void deliver() STATOR_EXCLUDES(mutex_);
  void handle(SessionOpened&& event);
  void handle(SessionAccepted&& event);
  void handle(SessionRejected&& event);
  void handle(inference::StepOutput&& step);
  void handle(SessionDraining&& event);
  void handle(SessionClosed&& event);
  /// Once per key in flight.
  void tell_accepted(inference::RequestKey key);

  const WorkerId worker_;
  net::Shard& shard_;
  const SessionMetrics metrics_;
  SessionEvents* events_;  // null when closed; loop only
  FlatMap<inference::RequestKey, KeyState> in_flight_;

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
