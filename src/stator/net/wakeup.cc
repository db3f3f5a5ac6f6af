// SPDX-License-Identifier: Apache-2.0
#include "stator/net/wakeup.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace stator::net {

void post_beyond_inbox(Shard& shard, std::function<void()> task) {
  boost::asio::post(shard.io(), std::move(task));
}

}  // namespace stator::net
