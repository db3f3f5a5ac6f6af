// SPDX-License-Identifier: Apache-2.0
#include "stator/session/session_requests.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/session/detail/step_merge.h"

namespace stator::session {

SessionRequests::SessionRequests(WorkerId worker, SessionEvents& events, SessionMetrics metrics)
    : worker_(worker), metrics_(metrics), events_(&events) {
  metrics_.sessions_open.add(1);
}

void SessionRequests::begin(inference::RequestKey key) {
  const bool fresh = in_flight_.emplace(key, KeyState::kSubmitted).second;
  STATOR_ASSERT(fresh, "S1: a key is submitted once at a time");
  ++submitted_;
}

bool SessionRequests::forget(inference::RequestKey key) {
  const auto found = in_flight_.find(key);
  if (found == in_flight_.end()) {
    return false;
  }
  submitted_ -= found->second == KeyState::kSubmitted ? 1 : 0;
  in_flight_.erase(found);
  return true;
}

void SessionRequests::close() {
  if (std::exchange(events_, nullptr) != nullptr) {
    metrics_.sessions_open.add(-1);
    in_flight_.clear();
    submitted_ = 0;
  }
}

void SessionRequests::deliver(SessionEvent event) {
  struct To {
    SessionRequests& self;
    void operator()(std::monostate&& /*event*/) const {}
    void operator()(SessionOpened&& /*event*/) const {
      self.opened_ = true;
      self.events_->on_opened(self.worker_);
    }
    void operator()(SessionAccepted&& event) const { self.accept(event.key); }
    void operator()(SessionRejected&& event) const { self.reject(std::move(event.failure)); }
    void operator()(inference::StepOutput&& event) const { self.step(std::move(event)); }
    void operator()(engine::LoadReport&& event) const {
      self.events_->on_load(self.worker_, event);
    }
    void operator()(SessionDraining&& /*event*/) const { self.events_->on_draining(self.worker_); }
    void operator()(SessionClosed&& event) const { self.end(std::move(event.error)); }
  };
  if (open()) {
    std::visit(To{*this}, std::move(event));
  }
}

void SessionRequests::accept(inference::RequestKey key) {
  const auto found = in_flight_.find(key);
  if (open() && found != in_flight_.end() &&
      std::exchange(found->second, KeyState::kAccepted) == KeyState::kSubmitted) {
    --submitted_;
    events_->on_accepted(worker_, key);
  }
}

void SessionRequests::reject(inference::Failure failure) {
  if (forget(failure.key)) {
    events_->on_rejected(worker_, failure.key, std::move(failure.error));
  }
}

/// Output implies acceptance (R2): an engine may be faster than whoever reports that.
void SessionRequests::accept_all(const inference::StepOutput& step) {
  for (const inference::Delta& delta : step.deltas) {
    accept(delta.key);
  }
  for (const inference::Failure& failure : step.failures) {
    accept(failure.key);
  }
  for (const inference::Pooled& pooled : step.pooled) {
    accept(pooled.key);
  }
}

void SessionRequests::drop_stale(inference::StepOutput& step) {
  uint64_t tokens = 0;
  const size_t stale = std::erase_if(step.deltas, [&](const inference::Delta& delta) {
    const bool known = delta.finish == inference::FinishReason::kNone
                           ? in_flight_.contains(delta.key)
                           : forget(delta.key);
    tokens += known ? delta.token_count : 0;
    return !known;
  });
  std::erase_if(step.failures,
                [&](const inference::Failure& failure) { return !forget(failure.key); });
  std::erase_if(step.pooled, [&](const inference::Pooled& pooled) { return !forget(pooled.key); });
  detail::drop_lone_parts(step);
  metrics_.tokens.add(tokens);
  if (stale > 0) {
    metrics_.stale_deltas.add(stale);
  }
}

void SessionRequests::step(inference::StepOutput step) {
  if (submitted_ > 0) {
    accept_all(step);  // its callbacks may cancel or close, so filtering comes after all of them
  }
  if (!open()) {
    return;
  }
  drop_stale(step);
  if (!step.deltas.empty() || !step.failures.empty() || !step.pooled.empty()) {
    events_->on_step(worker_, std::move(step));
  }
}

void SessionRequests::end(Error error) {
  SessionEvents& events = *events_;
  close();
  events.on_closed(worker_, std::move(error));
}

}  // namespace stator::session
