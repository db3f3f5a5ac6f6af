// SPDX-License-Identifier: Apache-2.0
#include "stator/session/session_core.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/net/wakeup.h"
#include "stator/session/detail/step_merge.h"

namespace stator::session {

SessionCore::SessionCore(WorkerId worker, net::Shard& shard, SessionEvents& events,
                         SessionMetrics metrics)
    : worker_(worker), shard_(shard), metrics_(metrics), events_(&events) {
  metrics_.sessions_open.add(1);
}

void SessionCore::push(SessionEvent event) {
  const MutexLock lock(mutex_);
  if (!shut_) {
    append(std::move(event));
    wake();
  }
}

void SessionCore::push_load(const engine::LoadReport& load) {
  const MutexLock lock(mutex_);
  if (!shut_) {
    inbox_.load = load;
    wake();
  }
}

void SessionCore::wake() {
  if (!std::exchange(woken_, true)) {
    net::post_wakeup(shard_, [self = shared_from_this()] { self->deliver(); });
  }
}

void SessionCore::append(SessionEvent event) {
  auto* step = std::get_if<inference::StepOutput>(&event);
  auto* last =
      inbox_.events.empty() ? nullptr : std::get_if<inference::StepOutput>(&inbox_.events.back());
  if (step != nullptr && last != nullptr) {
    detail::merge_step(*last, std::move(*step));
  } else {
    inbox_.events.push_back(std::move(event));
  }
}

void SessionCore::deliver() {
  Inbox inbox;
  {
    const MutexLock lock(mutex_);
    std::swap(inbox, inbox_);
    woken_ = false;
  }
  for (SessionEvent& event : inbox.events) {
    if (!open()) {
      break;
    }
    std::visit([this](auto&& value) { handle(std::move(value)); }, std::move(event));
  }
  if (open() && inbox.load) {
    events_->on_load(worker_, *inbox.load);
  }
}

void SessionCore::begin(inference::RequestKey key) {
  STATOR_ASSERT(shard_.on_loop(), "a session is used on its home loop");
  const bool fresh = in_flight_.emplace(key, KeyState::kSubmitted).second;
  STATOR_ASSERT(fresh, "S1: a key is submitted once at a time");
}

bool SessionCore::forget(inference::RequestKey key) {
  return in_flight_.erase(key) > 0;
}

void SessionCore::close() {
  if (std::exchange(events_, nullptr) == nullptr) {
    return;
  }
  metrics_.sessions_open.add(-1);
  in_flight_.clear();
  const MutexLock lock(mutex_);
  shut_ = true;
}

void SessionCore::tell_accepted(inference::RequestKey key) {
  const auto found = in_flight_.find(key);
  if (open() && found != in_flight_.end() &&
      std::exchange(found->second, KeyState::kAccepted) == KeyState::kSubmitted) {
    events_->on_accepted(worker_, key);
  }
}

void SessionCore::handle(SessionOpened&& /*event*/) {
  events_->on_opened(worker_);
}

void SessionCore::handle(SessionAccepted&& event) {
  tell_accepted(event.key);
}

void SessionCore::handle(SessionRejected&& event) {
  if (forget(event.failure.key)) {
    events_->on_rejected(worker_, event.failure.key, std::move(event.failure.error));
  }
}

void SessionCore::handle(inference::StepOutput&& step) {
  // The engine's thread may be faster than whoever reports the acceptance: output implies it (S2).
  // These callbacks may cancel or close, so filtering comes after all of them.
  for (const inference::Delta& delta : step.deltas) {
    tell_accepted(delta.key);
  }
  for (const inference::Failure& failure : step.failures) {
    tell_accepted(failure.key);
  }
  for (const inference::Pooled& pooled : step.pooled) {
    tell_accepted(pooled.key);
  }
  uint64_t tokens = 0;
  const size_t stale = std::erase_if(step.deltas, [&](const inference::Delta& delta) {
    if (!in_flight_.contains(delta.key)) {
      return true;
    }
    tokens += delta.token_count;
    if (delta.finish != inference::FinishReason::kNone) {
      forget(delta.key);
    }
    return false;
  });
  std::erase_if(step.failures,
                [&](const inference::Failure& failure) { return !forget(failure.key); });
  std::erase_if(step.pooled, [&](const inference::Pooled& pooled) { return !forget(pooled.key); });
  detail::drop_lone_parts(step);
  metrics_.tokens.add(tokens);
  metrics_.stale_deltas.add(stale);
  if (open() && (!step.deltas.empty() || !step.failures.empty() || !step.pooled.empty())) {
    events_->on_step(worker_, std::move(step));
  }
}

void SessionCore::handle(SessionDraining&& /*event*/) {
  events_->on_draining(worker_);
}

void SessionCore::handle(SessionClosed&& event) {
  SessionEvents& events = *events_;
  close();
  events.on_closed(worker_, std::move(event.error));
}

}  // namespace stator::session
