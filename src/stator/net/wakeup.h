// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "stator/net/shard.h"

namespace stator::net {

/// Past the shard's inbox.
void post_beyond_inbox(Shard& shard, std::function<void()> task);

/// Runs `task` on the shard's loop, even if the shard's inbox is full: for wake-ups, whose loss
/// would strand what they announce. The caller bounds them, at most one outstanding per object. A
/// stopped shard never runs it. A task that is a pointer or two needs no memory of its own.
template <typename Task>
void post_wakeup(Shard& shard, const Task& task) {
  if (!shard.post(Task(task))) {
    post_beyond_inbox(shard, task);
  }
}

}  // namespace stator::net
