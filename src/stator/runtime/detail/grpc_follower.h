// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "stator/core/metrics.h"
#include "stator/net/shard.h"
#include "stator/runtime/detail/call_reaper.h"
#include "stator/runtime/event_follower.h"

namespace grpc {
class Channel;
}

namespace stator::runtime::detail {

struct GrpcFollowerSetup {
  WorkerId worker;
  /// A fresh channel per attempt, so that no back-off of gRPC's delays ours.
  std::function<std::shared_ptr<grpc::Channel>()> connect;
  Counter reconnects;
  Counter rejected_messages;
  CallReaper& reaper;  ///< outlives the streams, the last of which ends after the follower
};

/// Follows a worker's Events stream. Call on the shard's loop.
std::unique_ptr<EventFollower> open_grpc_follower(GrpcFollowerSetup setup, net::Shard& shard,
                                                  KvEventsListener& listener);

}  // namespace stator::runtime::detail
