// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/detail/socket.h"

namespace stator::net {
class Shard;
}

namespace stator::net::detail {

struct AcceptorState;

/// Takes connections from a listening socket on a shard's loop: some per turn, so that a storm of
/// them does not hold up streams, and none for a while when there is no memory or descriptor for
/// them. Loop only; the destructor closes the socket.
class Acceptor {
 public:
  using Take = std::function<void(FileDescriptor)>;

  /// `backoffs` counts pauses.
  static Result<std::unique_ptr<Acceptor>> open(Shard& shard, ListenSocket socket, Counter backoffs,
                                                Take take);
  explicit Acceptor(std::shared_ptr<AcceptorState> state);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  ~Acceptor();

  void start();
  /// Takes what waits in the kernel's queue now.
  void take_waiting();

 private:
  const std::shared_ptr<AcceptorState> state_;  // shared with the wait in the loop
};

}  // namespace stator::net::detail
