// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/epp/ext_proc_stream.h"
#include "stator/epp/pool.h"
#include "stator/net/grpc_server.h"

namespace stator::net {
class Shard;
}

namespace stator::epp {

struct PickerServerConfig {
  std::string host = "0.0.0.0";
  uint16_t port = 9002;
  int32_t health_port = 9003;  ///< -1: none
  std::string pool_name = {};  ///< in metrics
  size_t in_flight_max = 0;    ///< requests at once, beyond 503; 0: as many as come
  StreamConfig stream = {};
  std::shared_ptr<const net::ServerTls> tls = nullptr;  ///< of the picker's port; null: plain
};

/// envoy.service.ext_proc.v3.ExternalProcessor on one port and gRPC health checks on both, on a
/// shard's loop. Health says SERVING once the pool knows its endpoints, and NOT_SERVING from
/// drain() on.
class PickerServer {
 public:
  static Result<std::unique_ptr<PickerServer>> listen(PickerServerConfig config, EndpointPool& pool,
                                                      net::Shard& shard, Metrics& metrics);
  virtual ~PickerServer() = default;
  virtual uint16_t port() const = 0;
  virtual uint16_t health_port() const = 0;
  /// Gateways are told to go elsewhere.
  virtual void drain() = 0;
  virtual void stop(Duration grace) = 0;
};

}  // namespace stator::epp
