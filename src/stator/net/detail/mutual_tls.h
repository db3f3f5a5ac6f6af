// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/net/detail/renewed_context.h"
#include "stator/net/grpc_call.h"
#include "stator/net/grpc_server.h"

namespace stator::net {

struct ClientTls::State {
  std::unique_ptr<detail::RenewedContext> context;
};
struct ServerTls::State {
  std::unique_ptr<detail::RenewedContext> context;
};

}  // namespace stator::net
