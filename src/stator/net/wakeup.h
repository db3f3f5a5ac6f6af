// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "stator/net/shard.h"

namespace stator::net {

/// Runs `task` on the shard's loop, even if the shard's inbox is full: for wake-ups, whose loss
/// would strand what they announce. The caller bounds them, at most one outstanding per object. A
/// stopped shard never runs it.
void post_wakeup(net::Shard& shard, const std::function<void()>& task);

}  // namespace stator::net
