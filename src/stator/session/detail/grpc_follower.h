// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/metrics.h"
#include "stator/kv_events/event_follower.h"
#include "stator/net/grpc_call.h"
#include "stator/net/shard.h"
#include "stator/session/connector.h"

namespace stator::session::detail {

struct GrpcFollowerSetup {
  WorkerId worker;
  std::string address;
  GrpcOptions options;
  std::shared_ptr<const net::ClientTls> tls;  ///< of `options`' files; null: plain
  Counter reconnects;
  Counter rejected_messages;
};

/// Follows a worker's Events stream. Call on the shard's loop.
std::unique_ptr<kv_events::EventFollower> open_grpc_follower(GrpcFollowerSetup setup,
                                                             net::Shard& shard,
                                                             kv_events::KvEventsListener& listener);

}  // namespace stator::session::detail
