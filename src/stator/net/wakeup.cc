// SPDX-License-Identifier: Apache-2.0
#include "stator/net/wakeup.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace stator::net {

void post_wakeup(net::Shard& shard, const std::function<void()>& task) {
  if (!shard.post([task] { task(); })) {
    boost::asio::post(shard.io(), task);
  }
}

}  // namespace stator::net
