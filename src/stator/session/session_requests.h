// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stator/core/flat_map.h"
#include "stator/session/session_event.h"
#include "stator/session/session_metrics.h"
#include "stator/session/worker_session.h"

namespace stator::session {

/// The requests that a session has at its worker, and the way of what the worker says to the
/// session's listener: the bookkeeping that makes S1 to S3 of WorkerSession true whatever the far
/// side does, the same for all carriers.
///
///   GrpcSession::on_message ──┬─► deliver ──► SessionEvents
///   SessionInbox::deliver ────┘
///
/// R1  After close() or closed() nothing is delivered, and the metrics are not touched.
/// R2  A key is accepted once, before its output, and nothing is delivered of a key that is not in
///     flight.
///
/// One thread: the shard's loop. The listener may destroy the session while deliver() runs: its
/// caller holds a reference to this object.
class SessionRequests {
 public:
  SessionRequests(WorkerId worker, SessionEvents& events, SessionMetrics metrics);
  SessionRequests(const SessionRequests&) = delete;
  SessionRequests& operator=(const SessionRequests&) = delete;
  ~SessionRequests() = default;

  WorkerId worker() const { return worker_; }
  const SessionMetrics& metrics() const { return metrics_; }
  bool open() const { return events_ != nullptr; }
  /// A request goes out. Asserts that its key is not in flight.
  void begin(inference::RequestKey key);
  /// The request is withdrawn; what still comes for it is dropped. False if it was not in flight.
  bool forget(inference::RequestKey key);
  size_t in_flight() const { return in_flight_.size(); }
  /// Nothing is delivered from now on. Idempotent.
  void close();

  /// Whether the worker has ever answered.
  bool has_opened() const { return opened_; }

  /// Never from inside a call to the session (S3).
  void deliver(SessionEvent event);

 private:
  enum class KeyState : uint8_t { kSubmitted, kAccepted };

  void accept(inference::RequestKey key);
  void reject(inference::Failure failure);
  void step(inference::StepOutput step);
  void end(Error error);
  void accept_all(const inference::StepOutput& step);
  void drop_stale(inference::StepOutput& step);

  const WorkerId worker_;
  const SessionMetrics metrics_;
  SessionEvents* events_;  // null when closed
  FlatMap<inference::RequestKey, KeyState> in_flight_;
  bool opened_ = false;
  size_t submitted_ = 0;  // of them, those that are not accepted yet
};

}  // namespace stator::session
