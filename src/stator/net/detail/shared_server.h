// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "stator/net/detail/socket.h"
#include "stator/net/http_server.h"

namespace stator::net::detail {

/// A server whose port others may serve, too: it begins and stops accepting when it is told.
class SharedServer : public HttpServer {
 public:
  virtual void start_accepting() = 0;
  /// From now on answers ask the client to connect anew (Connection: close) for what comes next,
  /// unless that is here already. Idle connections stay.
  virtual void send_clients_away() = 0;
  /// For sockets that another process accepts from, too: nothing in their queues is lost.
  virtual void close_listeners() = 0;
};

/// On sockets that listen already. Else as HttpServer::listen.
Result<std::unique_ptr<SharedServer>> make_shared_server(Shard& shard, HttpServerConfig config,
                                                         HttpHandler& handler, Metrics& metrics,
                                                         std::vector<ListenSocket> sockets);

}  // namespace stator::net::detail
