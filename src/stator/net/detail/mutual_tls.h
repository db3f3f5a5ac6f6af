// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "stator/net/grpc_call.h"
#include "stator/net/grpc_server.h"

namespace stator::net {

namespace detail {
struct SslContextDeleter {
  void operator()(SSL_CTX* of) const { SSL_CTX_free(of); }
};
using SslContext = std::unique_ptr<SSL_CTX, SslContextDeleter>;
}  // namespace detail

struct ClientTls::State {
  detail::SslContext context;
};
struct ServerTls::State {
  detail::SslContext context;
};

}  // namespace stator::net
