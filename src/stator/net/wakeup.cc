// SPDX-License-Identifier: Apache-2.0
#include "stator/net/wakeup.h"

#include <utility>

namespace stator::net {

void post_beyond_inbox(Shard& shard, std::function<void()> task) {
  shard.post_past_bound(std::move(task));
}

}  // namespace stator::net
