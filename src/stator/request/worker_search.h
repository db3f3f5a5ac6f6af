// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "stator/continuity/journal.h"
#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/request/action.h"
#include "stator/request/recovery.h"
#include "stator/router/router_service.h"

namespace stator::request {

/// A choice's search for a worker: why it looks for one, where it waits for one, and what it lost.
/// Part of a ChoiceRun: a pure core.
///
///   kIdle ── look(): kRoute ──► kLooking ── park(): kPark ──► kParked ── look() ──► kLooking
///   any ── rest(), found(), end() ──► kIdle
///
/// W1  A ticket is held only while it looks.
/// W2  What was lost is told once as over: end_move().
class WorkerSearch {
 public:
  /// It looks now; `cause` is what the choice fails with when there is no worker. None: as before.
  void look(std::optional<Error> cause, Actions& out);
  /// The same for a choice that loses workers, if there is a place in the budget of retries; else
  /// it waits, or fails.
  void look_after_loss(Error cause, continuity::Journal& journal, Recovery& recovery, TimePoint now,
                       Actions& out);
  /// A router lets it wait.
  void wait(router::QueueTicket ticket);
  void leave_queue() { ticket_ = {}; }
  void park(Error cause, Duration wait, Actions& out);
  /// The pause is over: why it looks. None: it was not parked.
  std::optional<Error> take_parked();
  /// No worker takes it now: what was generated already is worth a wait; a new request fails at
  /// once, with what it lost if it lost anything.
  void on_nobody(const Error& error, continuity::Journal& journal, const Recovery& recovery,
                 TimePoint now, Actions& out);
  /// Work is at a worker: perhaps only the prompt, whose loss may still be told with the cause.
  void rest() { state_ = State::kIdle; }
  /// It has a worker for the answer.
  void found();
  /// Nothing is held any more.
  void end();

  bool active() const { return state_ != State::kIdle; }
  bool parked() const { return state_ == State::kParked; }
  bool waits() const { return parked() || !ticket_.empty(); }

  // Workers that were lost.
  const std::optional<LostWorker>& lost() const { return lost_; }
  /// Counts the loss, and remembers the first until another worker's first token.
  void note(const LostWorker& lost, WorkerKey worker, Actions& out);
  /// Another worker has said its first token, or none will. Nothing lost: does nothing.
  void end_move(MigrationOutcome how, WorkerKey worker, Actions& out);
  void give_back_place() { place_.release(); }

 private:
  enum class State : uint8_t { kIdle, kLooking, kParked };

  State state_ = State::kIdle;
  router::QueueTicket ticket_;
  std::optional<Error> cause_;
  RetryPlace place_;
  std::optional<LostWorker> lost_;
};

}  // namespace stator::request
