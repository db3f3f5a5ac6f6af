// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/net/grpc_call.h"
#include "stator/session/connector.h"
#include "stator/session/session_metrics.h"
#include "stator/session/worker_session.h"

namespace stator::session::detail {

/// What a session needs besides its shard and its listener.
struct GrpcSessionSetup {
  WorkerId worker;
  Incarnation incarnation;
  std::string address;
  GrpcOptions options;
  std::shared_ptr<const net::ClientTls> tls;  ///< of `options`' files; null: plain
  SessionMetrics metrics;
};

/// A WorkerSession over a Session stream. Starts connecting at once.
std::unique_ptr<WorkerSession> open_grpc_session(GrpcSessionSetup setup, net::Shard& shard,
                                                 SessionEvents& events);

}  // namespace stator::session::detail
