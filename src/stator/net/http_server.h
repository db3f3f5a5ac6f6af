// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/byte_budget.h"
#include "stator/net/http_request.h"

namespace stator::net {

class Shard;
class ShardSet;

struct HttpBudgets;

/// Limits and addresses of a listener for HTTP/1.1 and HTTP/2. Timeouts are checked four times per
/// shortest timeout (at least once a second), so they fire up to a quarter late.
struct HttpServerConfig {
  std::string host = "0.0.0.0";                        ///< IPv4 or IPv6 address
  uint16_t port = 8000;                                ///< 0: the system picks one, see port()
  size_t header_bytes_max = 32 * 1024;                 ///< request line and headers; beyond: 431
  size_t headers_max = 100;                            ///< header lines; beyond: 431
  size_t body_bytes_max = 64UL * 1024 * 1024;          ///< beyond: 413, connection closed
  Duration header_timeout = std::chrono::seconds(10);  ///< first byte to end of headers; then 408
  /// Headers to end of body, longer by one second per 16 KiB received, but never longer than
  /// body_time_max; then 408.
  Duration body_timeout = std::chrono::seconds(60);
  Duration body_time_max = std::chrono::seconds(300);
  /// A body of which more than 1 MiB has come, and an answer of which more than 1 MiB is to go,
  /// must move at least so many bytes per second; then 408, or dropped. 1 Mbit/s; 0: any rate will
  /// do.
  size_t transfer_bytes_per_second_min = 128UL * 1024;
  /// Of HttpBudgets: beyond, the largest bodies are refused (503), the largest outputs dropped.
  size_t bodies_bytes_max = 1UL << 30;
  size_t output_bytes_max = 1UL << 30;
  Duration idle_timeout = std::chrono::seconds(75);     ///< between requests; then closed silently
  size_t connections_max = 65536;                       ///< per shard; beyond: 503 and closed
  size_t stream_high_water_bytes = 1024 * 1024;         ///< see HttpExchange::above_high_water
  size_t stream_buffer_bytes_max = 16UL * 1024 * 1024;  ///< unsent stream bytes; beyond: dropped
  /// A client that takes nothing, or keeps a stream above high water, this long is dropped.
  Duration slow_client_timeout = std::chrono::seconds(60);
  Duration stream_flush_interval = std::chrono::milliseconds(1);
  uint32_t http2_streams_max = 128;  ///< requests at once on one connection; 0: no HTTP/2
  std::string tls_cert_path;         ///< PEM chain; with tls_key_path: HTTPS, TLS 1.2 or later
  std::string tls_key_path;          ///< PEM
  /// PEM: clients must show a certificate that it signed; empty: they need none.
  std::string tls_client_ca_path;
  /// Origins whose pages may use the server from a browser (CORS): a list with commas, "*" for all,
  /// empty for none. Their preflights are answered without asking the handler.
  std::string cors_origins;
  /// Names of the server beside localhost and addresses, with commas: its own pages may change
  /// things only under these (see check_may_change).
  std::string allowed_hosts;
  /// kFirst checks that nobody else listens on the port; kJoin shares it with our other shards.
  enum class PortUse : uint8_t { kFirst, kJoin };
  PortUse port_use = PortUse::kFirst;
  /// Shared by the servers of a port, as listen_on_all() and HttpPort do; null: an own one.
  std::shared_ptr<HttpBudgets> budgets;
  std::string budget_prefix;  ///< of their names in metrics, where a process has several servers
};

/// What the servers of one port may keep for all their clients together.
struct HttpBudgets {
  HttpBudgets(const HttpServerConfig& config, Metrics& metrics)
      : bodies(config.budget_prefix + "request_bodies", config.bodies_bytes_max, metrics),
        output(config.budget_prefix + "output", config.output_bytes_max, metrics) {}
  ByteBudget bodies;  ///< of requests, until their handler has done with them
  ByteBudget output;  ///< answers and streams that clients have not taken
};

/// Why an exchange ended before it was answered.
enum class ClientGone : uint8_t {
  kDisconnected,  ///< end of file, reset or failed write
  kSlowReader,    ///< above the stream limits for too long
  kServerClosed,  ///< close_all()
};

/// Whoever answers an exchange and wants to know that nobody reads any more.
class ExchangeObserver {
 public:
  virtual ~ExchangeObserver() = default;
  /// The exchange is over and must not be touched again. At most once, and never after respond() or
  /// finish(); never from inside a call on the exchange, always straight from the loop.
  virtual void on_client_gone(ClientGone reason) = 0;
  /// What the client has sent since, of a body in pieces (BodyRule::in_pieces) or after
  /// start_tunnel(). From the loop, as on_client_gone; the exchange may be ended inside.
  virtual void on_body(std::string_view /*bytes*/) {}
  /// The client sends nothing more, and still reads. Once.
  virtual void on_body_end() {}
};

/// One request being answered. Owned by its connection, touched only on the shard's loop, valid
/// from HttpHandler::on_request until respond(), finish() or on_client_gone, whichever is first.
///
///   on_request → respond                                   (complete answer)
///              → start_stream → write … write → finish     (chunked answer)
///              → on_client_gone                            (from any state above)
///
/// E1  Exactly one of respond(), finish(), on_client_gone ends it. No call fails: a broken
///     connection is reported through the observer, and what is written meanwhile is dropped.
/// E2  What one loop turn writes leaves in one piece at the end of the turn. A stream flushed less
///     than `stream_flush_interval` ago waits for the next flush tick; finish() does not wait.
/// E3  A stream holds at most `stream_buffer_bytes_max` (plus one write) of unsent bytes.
class HttpExchange {
 public:
  HttpExchange() = default;
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  /// Lives as long as the exchange. Mutable so that the body can be moved out.
  virtual HttpRequest& request() = 0;
  /// Gives away the place that the body has in the server's budget: whoever takes the body keeps it
  /// as long as the body. Else it is free when the exchange ends. The server outlives it.
  virtual ByteLease take_body_lease() { return {}; }
  virtual Shard& shard() = 0;
  /// Where the client connects from, without the port; empty where that is not known. One system
  /// call.
  virtual std::string client_address() { return {}; }
  /// Made by this process for a client that was let in before, see DetachedExchange.
  virtual bool is_internal() const { return false; }

  /// At most one; null to remove. The observer outlives the exchange or removes itself.
  virtual void set_observer(ExchangeObserver* observer) = 0;

  /// The whole answer. `content_type` may be empty (no such header). Content-Length, Date and
  /// Connection are added. Control characters in header values become spaces. HEAD sends no body.
  virtual void respond(int status, std::string_view content_type, std::string_view body,
                       std::span<const HttpHeader> headers = {}) = 0;

  /// The same without a copy of a large body.
  virtual void respond_with(int status, std::string_view content_type, std::string body,
                            std::span<const HttpHeader> headers = {}) {
    respond(status, content_type, body, headers);
  }

  /// Sends status and headers (at the end of this turn, so the client sees the 200 before the first
  /// token), then chunks. HTTP/1.0 clients get the bytes unframed, ended by close.
  virtual void start_stream(int status, std::string_view content_type,
                            std::span<const HttpHeader> headers = {}) = 0;
  /// Appends to the stream; never blocks. Empty writes do nothing.
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;
  /// The same with fields behind the body, where takes_trailers(); else they are dropped.
  virtual bool takes_trailers() const { return false; }
  virtual void finish_with(std::span<const HttpHeader> /*trailers*/) { finish(); }
  /// Answers a request to go on in another protocol (Upgrade, or CONNECT of RFC 8441, whose
  /// `:protocol` tunnel_protocol() is): from now on bytes go both ways until finish(), ours by
  /// write(), the client's to on_body(). False, and nothing has happened, where there is no
  /// connection to go on with.
  virtual bool start_tunnel(std::span<const HttpHeader> /*headers*/) { return false; }
  virtual std::string_view tunnel_protocol() const { return {}; }
  /// Ends a started stream without its final chunk and closes the connection, so that the client
  /// sees a broken answer rather than a complete one. Ends the exchange like finish().
  virtual void abort() = 0;

  /// Bytes written and not yet taken by the kernel.
  virtual size_t buffered_bytes() const = 0;
  /// The client reads slower than we write: stop producing if you can. After `slow_client_timeout`
  /// above, or beyond `stream_buffer_bytes_max`, the client is dropped (ClientGone::kSlowReader).
  virtual bool above_high_water() const = 0;

 protected:
  ~HttpExchange() = default;
};

/// What answers requests; one per shard, or one shared that is thread-safe.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// A complete request, on the shard's loop. May answer at once or keep the exchange and answer
  /// later. Must not block. Must end every exchange that does not end by on_client_gone.
  virtual void on_request(HttpExchange& exchange) = 0;
  /// How large a body `head` may have, before the first byte of it is read. On the shard's loop.
  virtual BodyRule body_rule(const HttpRequest& /*head*/) const { return {}; }
  /// The JSON body with which the server refuses a request that the handler never sees; of `head`
  /// there is what was read of it, maybe nothing. On the shard's loop.
  virtual std::string refusal_body(const HttpRequest& /*head*/, int status,
                                   std::string_view message) const {
    return error_body(status, message);
  }
};

/// Accepts and serves HTTP/1.1 and HTTP/2 connections on one shard: HTTP/2 to clients that choose
/// it in the TLS handshake (ALPN) or begin with its preface; the handler sees no difference.
///
/// Keep-alive; pipelined requests of up to half a mebibyte are kept while another is answered,
/// beyond that the connection is closed. Malformed requests (400, 408, 413, 417, 431, 501, 503,
/// 505) are answered with error_body() and closed without asking the handler.
///
/// Made and destroyed on the shard's loop, or while the loop is not running; destroying closes all
/// connections as close_all() does. `handler` and `metrics` outlive it.
class HttpServer {
 public:
  /// Binds and listens. kAlreadyExists when the address is taken, kInvalidArgument for a bad host,
  /// certificate, key or origin; messages name the option to change.
  static Result<std::unique_ptr<HttpServer>> listen(Shard& shard, HttpServerConfig config,
                                                    HttpHandler& handler, Metrics& metrics);

  /// One server per shard on one port (`handlers[i]` serves shard i), the way `main` wants it.
  /// Call before ShardSet::start().
  static Result<std::vector<std::unique_ptr<HttpServer>>> listen_on_all(
      ShardSet& shards, HttpServerConfig config, std::span<HttpHandler* const> handlers,
      Metrics& metrics);

  virtual ~HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The bound port. Any thread.
  virtual uint16_t port() const = 0;
  /// Closes the listening socket and idle connections; busy ones finish their request and close.
  virtual void stop_accepting() = 0;
  /// Closes every connection at once; open exchanges end with ClientGone::kServerClosed.
  virtual void close_all() = 0;
  /// Open connections. Any thread.
  virtual size_t connection_count() const = 0;
  /// Requests handed to the handler and not yet ended. Any thread. With stop_accepting(): drained
  /// when 0.
  virtual size_t open_exchanges() const = 0;

 protected:
  HttpServer() = default;
};

}  // namespace stator::net
