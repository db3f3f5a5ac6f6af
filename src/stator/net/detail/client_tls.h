// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "stator/net/grpc_call.h"

namespace stator::net {

struct ClientTls::State {
  struct Deleter {
    void operator()(SSL_CTX* of) const { SSL_CTX_free(of); }
  };
  std::unique_ptr<SSL_CTX, Deleter> context;
};

}  // namespace stator::net
