// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/frontend_config.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// The Responses API over WebSockets, as OpenAI's SDKs use it: each message is `response.create`
/// with the fields of POST /v1/responses, and is answered by the events of its stream, one message
/// each. One response at a time on a socket; what stands before it is found by
/// previous_response_id.
///
/// Bounds: http.body_bytes_max per message; kSocketsMax per shard; kLifeMax; a client that gives no
/// sign of life for twice kLookInterval is given up.
///
/// Home loop: the shard's.
class ResponsesSockets {
 public:
  static constexpr size_t kSocketsMax = 4096;
  static constexpr Duration kLifeMax = std::chrono::hours(1);
  static constexpr Duration kLookInterval = std::chrono::seconds(30);

  struct Environment {
    net::Shard& shard;
    const FrontendConfig& config;
    const std::atomic<Stage>& stage;
    net::HttpHandler& handler;  ///< the front door
  };
  explicit ResponsesSockets(const Environment& environment);
  ResponsesSockets(const ResponsesSockets&) = delete;
  ResponsesSockets& operator=(const ResponsesSockets&) = delete;
  ~ResponsesSockets();

  /// Opens a socket for who asks for one at /v1/responses; false for the rest.
  bool answer(net::HttpExchange& exchange);
  /// Closes them all.
  void stop();

 private:
  class Socket;

  void end(Socket& socket);
  void sweep();
  void schedule();

  const Environment environment_;
  FlatMap<Socket*, std::unique_ptr<Socket>> sockets_;
  std::vector<std::unique_ptr<Socket>> ended_;  // until the loop is back from them
  net::Timer forget_timer_;
  net::Timer sweep_timer_;  // while there are sockets
};

}  // namespace stator::frontend
