// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stator/core/clock.h"
#include "stator/request/action.h"
#include "stator/request/choice_run.h"

namespace stator::request {

/// One client request from its dispatch to the end of its answer: its choices, and what is left to
/// do when the last of them has ended. A pure core, as ChoiceRun is.
///
///   kRunning ── on_choice_done(), the last ──► kAnswering ── on_sent(kComplete) ──► kDone
///                                              │    ▲  └─ on_sent(kUnderWay) ─► kCopying ──► kDone
///                                 on_writing() ▼    │ on_written()
///                                              kWriting
///   any ── stop(): an error, the client left, or the end ──► kDone
///
/// R1  It is done once, and then none of its choices holds anything or asks for anything.
/// R2  A choice counts as open until its last word is written, whoever said it.
class RequestRun {
 public:
  enum class State : uint8_t { kRunning, kAnswering, kWriting, kCopying, kDone };
  enum class Copy : uint8_t { kComplete, kUnderWay };

  explicit RequestRun(const std::vector<ChoiceRun::Spec>& choices);

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  std::vector<ChoiceRun>& choices() { return choices_; }
  const std::vector<ChoiceRun>& choices() const { return choices_; }
  bool all_closed() const { return open_ == 0; }

  /// The choice has its last word: R2. Idempotent.
  void close(ChoiceRun& choice);
  /// A choice is over. True: it was the last one, and the answer is to be completed.
  bool on_choice_done();
  /// Its body is being written elsewhere.
  void on_writing();
  /// True: the body was still wanted.
  bool on_written();
  /// The answer left, or will when its copy is complete. True: the request is over.
  bool on_sent(Copy copy);
  /// Its copy is complete, or lost. True: nothing else was waited for, the request is over.
  bool on_copied() const { return state_ == State::kCopying; }
  /// It is over, with an error or without its client: gives back what the choices hold, and asks
  /// for the end of what workers do for them. `how` of migrations under way.
  void stop(MigrationOutcome how, TimePoint now, Actions& out);
  /// The latest sign that a worker is at it; choices that wait for one have limits of their own.
  TimePoint last_sign(TimePoint last_output, TimePoint now) const;

 private:
  State state_ = State::kRunning;
  std::vector<ChoiceRun> choices_;
  size_t open_;
};

}  // namespace stator::request
