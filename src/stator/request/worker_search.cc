// SPDX-License-Identifier: Apache-2.0
#include "stator/request/worker_search.h"

#include <utility>

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using Kind = Action::Kind;

// How often a request without a worker looks for one, beside being told of new ones.
constexpr Duration kParkedRetry = 100ms;

}  // namespace

void WorkerSearch::look(std::optional<Error> cause, Actions& out) {
  if (cause) {
    cause_ = std::move(cause);
  }
  state_ = State::kLooking;
  out.add({.kind = Kind::kRoute});
}

void WorkerSearch::look_after_loss(Error cause, continuity::Journal& journal, Recovery& recovery,
                                   TimePoint now, Actions& out) {
  if (place_.empty()) {
    auto place = recovery.take_place(journal);
    if (!place) {
      out.add({.kind = Kind::kCount, .event = Event::kRetryBudgetSpent});
      cause_ = cause.clone();
      on_nobody(cause, journal, recovery, now, out);
      return;
    }
    place_ = std::move(*place);
  }
  look(std::move(cause), out);
}

void WorkerSearch::wait(router::QueueTicket ticket) {
  cause_.reset();
  ticket_ = std::move(ticket);
}

void WorkerSearch::park(Error cause, Duration wait, Actions& out) {
  cause_ = std::move(cause);
  state_ = State::kParked;
  out.add({.kind = Kind::kPark, .wait = wait});
}

std::optional<Error> WorkerSearch::take_parked() {
  return parked() ? std::exchange(cause_, std::nullopt) : std::nullopt;
}

void WorkerSearch::on_nobody(const Error& error, continuity::Journal& journal,
                             const Recovery& recovery, TimePoint now, Actions& out) {
  Error cause = cause_ ? *std::exchange(cause_, std::nullopt) : error.clone();
  if (error.info().retry != Retry::kNever && recovery.has_patience(lost_, now)) {
    journal.forgive();
    park(std::move(cause), kParkedRetry, out);
    return;
  }
  out.add({.kind = Kind::kFail, .error = std::move(cause)});
}

void WorkerSearch::found() {
  state_ = State::kIdle;
  cause_.reset();
}

void WorkerSearch::end() {
  state_ = State::kIdle;
  ticket_ = {};
  cause_.reset();
  place_.release();
}

void WorkerSearch::note(const LostWorker& lost, WorkerKey worker, Actions& out) {
  out.add({.kind = Kind::kCount, .event = Event::kMigrated, .lost = lost});
  out.add({.kind = Kind::kNote, .worker = worker, .step = telemetry::Step::kLost});
  if (!lost_) {
    lost_ = lost;
  }
}

void WorkerSearch::end_move(MigrationOutcome how, WorkerKey worker, Actions& out) {
  if (lost_) {
    out.add({.kind = Kind::kRecovered,
             .worker = worker,
             .migration = how,
             .lost = *std::exchange(lost_, std::nullopt)});
  }
}

}  // namespace stator::request
