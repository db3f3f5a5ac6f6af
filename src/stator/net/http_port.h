// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/http_server.h"
#include "stator/net/shared_port.h"

namespace stator::net {

namespace detail {
class SharedServer;
}

/// Whether to share a port that a process of this user serves already.
enum class PortJoin : uint8_t { kNo, kYes };

/// An HTTP port: a server per shard, and the way in and out of it beside other processes that serve
/// the same port (shared_port.h).
///
///   STATOR_TRY(auto port, HttpPort::open(shards, config, handlers, metrics, PortJoin::kYes));
///   shards.start();  port->start();
///   if (port->joined()) { …get ready…; port->accept(); }
///   …
///   port->leave();  …for a while…;  port->drain();  …until connections() is 0…;  port->close();
///
/// Called by one thread that is no loop; the loops run from start() to close(). `shards`, handlers
/// and metrics outlive it.
class HttpPort {
 public:
  /// As HttpServer::listen. With kYes a port that a process of this user serves is shared.
  static Result<std::unique_ptr<HttpPort>> open(ShardSet& shards, const HttpServerConfig& config,
                                                std::span<HttpHandler* const> handlers,
                                                Metrics& metrics, PortJoin join);
  HttpPort(const HttpPort&) = delete;
  HttpPort& operator=(const HttpPort&) = delete;
  ~HttpPort();

  uint16_t port() const { return line_->port(); }
  /// The sockets come from another process, which serves until this one accepts.
  bool joined() const { return line_->joined(); }
  /// Another process accepts on the port.
  bool others_accept() const { return line_->others_accept(); }

  /// Accepts, unless it joined().
  void start();
  void accept();
  /// Answers all, but asks clients to connect anew. If others accept, it accepts no more; true
  /// then.
  bool leave();
  /// Closes the port and idle connections; busy ones finish their request and close. One that was
  /// just opened has a second to bring its first request.
  void drain();
  /// Closes every connection. Idempotent.
  void close();

  /// Open connections; after drain() those that still have something to say.
  size_t connections() const;
  /// Requests that are not answered yet.
  size_t open_exchanges() const;

 private:
  HttpPort(ShardSet& shards, std::unique_ptr<SharedPort> line);
  template <typename Task>
  void on_each(const Task& task);
  void leave_line();

  ShardSet& shards_;
  const std::unique_ptr<SharedPort> line_;
  std::vector<std::unique_ptr<detail::SharedServer>> servers_;
};

}  // namespace stator::net
