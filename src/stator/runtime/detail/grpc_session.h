// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/runtime/connector.h"
#include "stator/runtime/detail/call_reaper.h"
#include "stator/runtime/detail/session_metrics.h"
#include "stator/runtime/worker_session.h"

namespace grpc {
class Channel;
}

namespace stator::runtime::detail {

/// What a session needs besides its shard and its listener.
struct GrpcSessionSetup {
  std::shared_ptr<grpc::Channel> channel;
  WorkerId worker;
  Incarnation incarnation;
  std::string address;  ///< for messages
  GrpcOptions options;
  SessionMetrics metrics;
  CallReaper& reaper;  ///< outlives the stream, which ends after the session
};

/// A WorkerSession over a Session stream. Starts connecting at once.
std::unique_ptr<WorkerSession> open_grpc_session(GrpcSessionSetup setup, net::Shard& shard,
                                                 SessionEvents& events);

}  // namespace stator::runtime::detail
