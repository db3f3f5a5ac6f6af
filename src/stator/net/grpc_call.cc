// SPDX-License-Identifier: Apache-2.0
#include "stator/net/grpc_call.h"

#include <utility>

#include "stator/core/assert.h"
#include "stator/net/detail/grpc_client_connection.h"
#include "stator/net/shard.h"

namespace stator::net {

std::unique_ptr<GrpcCall> GrpcCall::open(GrpcCallOptions options, Shard& shard,
                                         GrpcCallListener& listener) {
  const auto connection = std::make_shared<detail::GrpcClientConnection>(
      detail::GrpcClientConnection::Target{.address = std::move(options.address),
                                           .tls = std::move(options.tls),
                                           .server_name = std::move(options.server_name),
                                           .keepalive_interval = options.keepalive_interval,
                                           .keepalive_timeout = options.keepalive_timeout,
                                           .connect_timeout = std::nullopt},
      shard);
  auto call = connection->begin(
      {.path = std::move(options.path), .message_bytes_max = options.message_bytes_max}, listener);
  STATOR_ASSERT(call != nullptr, "a fresh connection takes a call");
  connection->start();
  connection->release();
  return call;
}

}  // namespace stator::net
