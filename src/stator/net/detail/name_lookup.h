// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/detail/socket.h"
#include "stator/net/thread.h"

namespace stator::net {
class Shard;
}

namespace stator::net::detail {

/// Looks names up for one shard, one after the other, on a thread of its own: getaddrinfo() blocks.
/// The destructor waits for the look-up under way.
class NameLookup {
 public:
  using Done = std::function<void(Result<std::vector<SocketAddress>>)>;

  explicit NameLookup(Shard& shard);
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;
  ~NameLookup();

  /// `done` runs on the shard's loop, or is destroyed when the shard ends first.
  void start(Endpoint where, Done done);

 private:
  struct Wish {
    Endpoint where;
    Done done;
  };
  void run();

  Shard& shard_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Wish> wishes_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace stator::net::detail
