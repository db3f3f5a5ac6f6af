// SPDX-License-Identifier: Apache-2.0
#include "stator/session/session_inbox.h"

#include <utility>

#include "stator/net/wakeup.h"
#include "stator/session/detail/step_merge.h"

namespace stator::session {

void SessionInbox::push(SessionEvent event) {
  const MutexLock lock(mutex_);
  if (!shut_) {
    append(std::move(event));
    wake();
  }
}

void SessionInbox::wake() {
  if (!std::exchange(woken_, true)) {
    net::post_wakeup(shard_, [self = shared_from_this()] { self->deliver(); });
  }
}

void SessionInbox::append(SessionEvent event) {
  if (const auto* load = std::get_if<engine::LoadReport>(&event)) {
    inbox_.load = *load;
    return;
  }
  auto* step = std::get_if<inference::StepOutput>(&event);
  auto* last =
      inbox_.events.empty() ? nullptr : std::get_if<inference::StepOutput>(&inbox_.events.back());
  if (step != nullptr && last != nullptr) {
    detail::merge_step(*last, std::move(*step));
  } else {
    inbox_.events.push_back(std::move(event));
  }
}

void SessionInbox::deliver() {
  Inbox inbox;
  {
    const MutexLock lock(mutex_);
    std::swap(inbox, inbox_);
    woken_ = false;
  }
  for (SessionEvent& event : inbox.events) {
    requests_.deliver(std::move(event));
  }
  if (inbox.load) {
    requests_.deliver(*inbox.load);
  }
}

void SessionInbox::close() {
  requests_.close();
  const MutexLock lock(mutex_);
  shut_ = true;
}

}  // namespace stator::session
