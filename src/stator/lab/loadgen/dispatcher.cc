// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/dispatcher.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::loadgen {
namespace {

/// The part of `total` that falls to one of equal shares; the first ones get the rest.
uint64_t part_of(uint64_t total, const DispatchOptions& options) {
  return total / options.shares + (options.share < total % options.shares ? 1 : 0);
}

}  // namespace

Dispatcher::Dispatcher(const Workload& workload, const DispatchOptions& options)
    : workload_(workload),
      options_(options),
      requests_max_(options.requests_max == 0 ? UINT64_MAX
                                              : part_of(options.requests_max, options)),
      schedule_(options.arrivals),
      next_slot_(options.share),
      next_session_(options.share) {}

bool Dispatcher::has_next_session() const {
  return workload_.sessions() == 0 || next_session_ < workload_.sessions();
}

bool Dispatcher::may_start(Duration due) const {
  return !stopped_ && committed_ < requests_max_ &&
         (options_.duration == Duration{} || due < options_.duration);
}

uint64_t Dispatcher::take_session() {
  const uint64_t session = next_session_;
  next_session_ += options_.shares;
  return session;
}

/// When the next new session arrives by itself; nothing if none does.
std::optional<Duration> Dispatcher::next_arrival() {
  if (options_.mode == LoadMode::kClosed) {
    if (next_slot_ >= options_.concurrency || !has_next_session()) {
      return std::nullopt;
    }
    return options_.ramp * next_slot_ / options_.concurrency;
  }
  if (!has_next_session()) {
    return std::nullopt;
  }
  if (options_.mode == LoadMode::kTrace) {
    return workload_.start(next_session_);
  }
  while (!arrival_) {  // the arrivals of the other shares are drawn and passed over
    const Duration at = schedule_.next();
    if (scheduled_++ % options_.shares == options_.share) {
      arrival_ = at;
    }
  }
  return arrival_;
}

/// Users of a closed loop who are free when no session is left.
void Dispatcher::drop_idle_users() {
  while (!pending_.empty() && pending_.top().is_new && !has_next_session()) {
    pending_.pop();
  }
}

std::optional<Duration> Dispatcher::next_due() {
  if (!ready_.empty()) {
    return stopped_ || in_flight_ < options_.in_flight_max ? std::optional(ready_.front().due)
                                                           : std::nullopt;
  }
  drop_idle_users();
  std::optional<Duration> due;
  const auto arrival = next_arrival();
  if (arrival && may_start(*arrival)) {
    due = arrival;
  }
  if (!pending_.empty() && may_start(pending_.top().due)) {
    due = due ? std::min(*due, pending_.top().due) : pending_.top().due;
  }
  return due;
}

void Dispatcher::add_ready(Launch launch, bool may_drop) {
  launch.dropped = may_drop && ready_.size() >= options_.backlog_max;
  ++committed_;
  ready_.push_back(launch);
}

/// Moves what is due to the backlog, in order of time. When nothing of a full backlog can be sent,
/// one more entry is added, which take() hands out at once as dropped.
void Dispatcher::collect_due(Duration now) {
  const size_t most = options_.backlog_max + (in_flight_ < options_.in_flight_max ? 0 : 1);
  while (ready_.size() < most) {
    drop_idle_users();
    const auto arrival = next_arrival();
    const bool has_arrival = arrival && *arrival <= now && may_start(*arrival);
    const bool has_pending =
        !pending_.empty() && pending_.top().due <= now && may_start(pending_.top().due);
    if (has_pending && (!has_arrival || pending_.top().due <= *arrival)) {
      const Pending next = pending_.top();
      pending_.pop();
      add_ready({.session = next.is_new ? take_session() : next.session,
                 .turn = next.turn,
                 .due = next.due},
                false);
    } else if (has_arrival) {
      if (options_.mode == LoadMode::kClosed) {
        next_slot_ += options_.shares;
      }
      arrival_.reset();
      add_ready({.session = take_session(), .turn = 0, .due = *arrival}, true);
    } else {
      return;
    }
  }
}

std::optional<Launch> Dispatcher::take(Duration now) {
  if (!stopped_) {
    collect_due(now);
  }
  if (ready_.empty()) {
    return std::nullopt;
  }
  if (stopped_ || ready_.back().dropped) {
    Launch launch = ready_.back();
    ready_.pop_back();
    launch.dropped = true;
    return launch;
  }
  if (in_flight_ >= options_.in_flight_max) {
    return std::nullopt;
  }
  Launch launch = ready_.front();
  ready_.pop_front();
  launch.sendable = std::max(launch.due, unblocked_at_);
  held_back_ += launch.sendable > launch.due ? 1 : 0;
  ++in_flight_;
  return launch;
}

void Dispatcher::finished(uint64_t session, uint32_t turn, Outcome outcome, Duration now) {
  STATOR_ASSERT(in_flight_ > 0, "D2: an answer to something that was not launched");
  if (in_flight_ == options_.in_flight_max) {
    unblocked_at_ = now;
  }
  --in_flight_;
  if (outcome == Outcome::kAnswered && turn + 1 < workload_.turns(session)) {
    const Duration due = now + workload_.turn(session, turn + 1).delay;
    pending_.push({due, sequence_++, session, turn + 1, false});
  } else if (options_.mode == LoadMode::kClosed) {
    pending_.push({now, sequence_++, 0, 0, true});
  }
}

bool Dispatcher::done() {
  return in_flight_ == 0 && ready_.empty() && !next_due();
}

}  // namespace stator::loadgen
