// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/shard_post.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace stator::runtime::detail {

void post_wakeup(net::Shard& shard, const std::function<void()>& task) {
  if (!shard.post([task] { task(); })) {
    boost::asio::post(shard.io(), task);
  }
}

}  // namespace stator::runtime::detail
