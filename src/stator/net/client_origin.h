// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/net/http_server.h"

namespace stator::net {

/// Whether the client is a process of this host (a loopback address), as far as one can see: not
/// what a proxy on this host passed on and said so. False for an exchange that is no connection of
/// an HttpServer. Asks the kernel: for rare requests.
bool client_is_local(HttpExchange& exchange);

}  // namespace stator::net
