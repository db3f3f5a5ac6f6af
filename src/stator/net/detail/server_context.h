// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/net/detail/cors_policy.h"
#include "stator/net/detail/request_parser.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::net::detail {

class HttpConnection;
class ServerConnection;

/// The server's counters; one set per process, whatever the number of shards.
struct ServerMetrics {
  explicit ServerMetrics(Metrics& metrics);
  Gauge connections_open;
  Counter requests;
  Counter bytes_written;
  Counter clients_gone;
  Counter slow_clients;
  Counter accept_backoffs;
  Counter rejected_malformed;
  Counter rejected_headers;
  Counter rejected_body;
  Counter rejected_timeout;
  Counter rejected_connections;
  Counter rejected_budget;
  Counter rejected_pipelined;
  Counter rejected_flood;
  Counter http2_connections;

  /// Counts a request refused with `status`.
  void count_refusal(int status) const;
};

/// What the connections of one server share: limits, the read buffer, and the lists of connections
/// that want something at the end of the turn. Lives as long as any connection is not closed.
/// Loop only, except the atomic.
struct ServerContext {
  ServerContext(Shard& shard_in, HttpServerConfig config_in, HttpHandler& handler_in,
                Metrics& metrics_in, CorsPolicy cors_in);

  /// The Date header, at most half a second old.
  std::string_view date_line();

  Shard& shard;
  const HttpServerConfig config;
  HttpHandler& handler;
  const ServerMetrics metrics;
  const ParserLimits limits;
  const CorsPolicy cors;
  const std::shared_ptr<HttpBudgets> budgets;  // shared: by the servers of all shards
  /// Makes room for a body's next bytes at the cost of larger ones of this server, if there are
  /// any.
  std::function<void(const ServerConnection& asker)> make_room;
  /// Goes on in HTTP/2 on the connection's socket, with the bytes that have come.
  std::function<void(HttpConnection& from, std::string_view bytes)> go_on_in_http2;
  bool send_away = false;  ///< answers say Connection: close
  bool draining = false;   ///< and connections close once idle
  std::atomic<size_t> open_exchanges{0};

  // One buffer for all reads: a connection holds no memory for bytes that have not come.
  std::vector<char> read_buffer;
  std::vector<ServerConnection*> dirty;    // have output to flush at the end of this turn
  std::vector<ServerConnection*> delayed;  // flushed less than a flush interval ago
  std::vector<ServerConnection*> closed;   // to be forgotten at the end of this turn

 private:
  std::string date_line_;
  TimePoint date_made_at_;
};

}  // namespace stator::net::detail
