// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/session_book.h"

#include <fmt/format.h>

#include <utility>

namespace stator::engine {

SessionId LiveRequests::open() {
  const SessionId session(next_session_++);
  sessions_.try_emplace(session);
  return session;
}

bool LiveRequests::close(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) {
    return false;
  }
  size_ -= found->second.size();
  sessions_.erase(found);
  return true;
}

Status LiveRequests::add(SessionId session, inference::RequestKey key) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) {
    return Error(Code::kNotFound, "the session with the engine is closed; open a new one");
  }
  if (!found->second.insert(key).second) {
    return Error(Code::kAlreadyExists, fmt::format("request {} attempt {} is running already",
                                                   key.request.value(), key.attempt.value()));
  }
  ++size_;
  return {};
}

bool LiveRequests::contains(SessionId session, inference::RequestKey key) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.contains(key);
}

bool LiveRequests::remove(SessionId session, inference::RequestKey key) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.erase(key) == 0) {
    return false;
  }
  --size_;
  return true;
}

bool LiveRequests::has(SessionId session, inference::RequestKey key) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.contains(key);
}

void LiveRequests::remove_ended(SessionId session, const inference::StepOutput& step) {
  for (const inference::Delta& delta : step.deltas) {
    if (delta.finish != inference::FinishReason::kNone) {
      remove(session, delta.key);
    }
  }
  for (const inference::Failure& failure : step.failures) {
    remove(session, failure.key);
  }
  for (const inference::Pooled& pooled : step.pooled) {
    remove(session, pooled.key);
  }
}

void Sinks::add(SessionId session, EngineSink& sink) {
  const MutexLock lock(mutex_);
  sinks_.emplace(session, &sink);
}

void Sinks::remove(SessionId session) {
  const MutexLock lock(mutex_);
  sinks_.erase(session);
}

void Sinks::deliver(SessionId session, inference::StepOutput step) {
  const MutexLock lock(mutex_);
  if (const auto found = sinks_.find(session); found != sinks_.end()) {
    found->second->on_step(std::move(step));
  }
}

}  // namespace stator::engine
