// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"

namespace stator::session {

enum class CancelReason : uint8_t { kClientGone, kStopped, kDeadline, kSuperseded, kShutdown };

/// What a session tells its frontend shard. All calls come on the shard's loop.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  /// The worker answered; before any other event. Requests may be submitted before it.
  virtual void on_opened(WorkerId /*worker*/) {}
  /// How busy the worker is: once after on_opened, then on change, at most ten times a second.
  virtual void on_load(WorkerId /*worker*/, const engine::LoadReport& /*load*/) {}
  /// The worker refused the request: nothing else will come for `key`.
  virtual void on_rejected(WorkerId worker, inference::RequestKey key, Error error) = 0;
  /// The worker took the request; output follows.
  virtual void on_accepted(WorkerId worker, inference::RequestKey key) = 0;
  /// One engine step. The session has already dropped deltas of unknown keys; offsets are
  /// unchecked.
  virtual void on_step(WorkerId worker, inference::StepOutput output) = 0;
  /// The worker finishes what it has and takes nothing new.
  virtual void on_draining(WorkerId worker) = 0;
  /// The connection is gone with everything in flight; the session will not call again. `error` has
  /// code kDisconnected or kUnavailable.
  virtual void on_closed(WorkerId worker, Error error) = 0;
};

/// One frontend shard's line to one worker, in process or over gRPC: the same calls, order and
/// guarantees. Home loop: the shard's; every method is called there. Nothing blocks.
///
/// S1  For each submitted key exactly one of: on_rejected, a failure or finishing delta in on_step,
///     on_closed — or nothing after cancel().
/// S2  on_accepted precedes output of a key.
/// S3  No event is delivered from inside a call to the session, and none after close() or
/// destruction.
///
/// Submitting a key that is still in flight is a bug of the caller.
class WorkerSession {
 public:
  virtual ~WorkerSession() = default;
  virtual WorkerId worker() const = 0;
  virtual void submit(inference::EngineRequest request) = 0;
  virtual void cancel(inference::RequestKey key, CancelReason reason) = 0;
  /// Cancels everything and closes; no event follows. Idempotent; the destructor does it, too.
  virtual void close() = 0;
};

}  // namespace stator::session
