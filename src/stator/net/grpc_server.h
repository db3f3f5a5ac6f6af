// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/byte_budget.h"
#include "stator/net/grpc_call.h"

namespace stator::net {

class Shard;

/// Who calls.
struct GrpcCaller {
  std::string address;             ///< host:port
  std::vector<std::string> names;  ///< that its certificate has; empty without TLS
};

/// A call at the server, to answer. Thread-safe; does nothing once the call is over. Nobody but its
/// users keeps it.
class GrpcServerCall {
 public:
  virtual ~GrpcServerCall() = default;
  virtual const GrpcCaller& caller() const = 0;
  /// Queues a message for the next flush().
  virtual void send(std::string_view message) = 0;
  /// Writes what waits as far as socket and client take it: on the caller's thread, so that nobody
  /// else need be woken. From inside the handler's functions it may wait for their end.
  virtual void flush() = 0;
  /// True while little waits (64 KiB). After false on_room follows when all of it has gone.
  virtual bool has_room() = 0;
  /// Bytes that wait because the client or the network is slow, or for flush().
  virtual size_t unsent_bytes() = 0;
  /// Queues the call's end, and flushes. Only the first counts.
  virtual void finish(GrpcOutcome outcome) = 0;
  /// No messages until go_on(); HTTP/2's window (1 MiB) then stops the client. On the loop.
  virtual void hold() = 0;
  virtual void go_on() = 0;
};

/// Told of a call, on the server's loop and never from inside a function of the call.
class GrpcCallHandler {
 public:
  virtual ~GrpcCallHandler() = default;
  /// The bytes are gone when this returns.
  virtual void on_message(std::string_view message) = 0;
  /// The client has said all it wants.
  virtual void on_half_closed() = 0;
  virtual void on_room() {}
  /// The last word: the status has been sent, the client is gone, or the server stops.
  virtual void on_gone() = 0;
};

/// Certificates of the server's side of TLS connections. Thread-safe once loaded.
class ServerTls {
 public:
  /// PEM files. kIo, naming the file, when one cannot be used. Clients must show a certificate that
  /// `ca` signed; with an empty `ca` they need none.
  static Result<std::shared_ptr<const ServerTls>> load(const std::filesystem::path& certificate,
                                                       const std::filesystem::path& key,
                                                       const std::filesystem::path& ca);
  ServerTls(const ServerTls&) = delete;
  ServerTls& operator=(const ServerTls&) = delete;
  ~ServerTls();

  struct State;
  explicit ServerTls(std::unique_ptr<State> state);
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct GrpcServerOptions {
  std::string host = "127.0.0.1";                  ///< an address or a name of this machine
  uint16_t port = 0;                               ///< 0: any free one
  std::shared_ptr<const ServerTls> tls = nullptr;  ///< null: plain
  size_t message_bytes_max = size_t{16} * 1024 * 1024;
  uint32_t calls_max = 128;       ///< per connection; further ones wait at the client
  size_t connections_max = 4096;  ///< a further one is closed at once
  /// What is held of messages whose end has not come, and of those for calls that hold(). A call
  /// that would exceed one of the bounds ends with RESOURCE_EXHAUSTED.
  size_t unfinished_bytes_max = 2 * message_bytes_max;  ///< per connection
  /// Of the process (MessageShare says how connections share it); null: kServerBytesMax for this
  /// server alone.
  std::shared_ptr<ByteBudget> message_budget = nullptr;
  static constexpr size_t kServerBytesMax = size_t{256} * 1024 * 1024;
  /// A message that was begun must end within this time and twice this time, or its call ends.
  Duration message_timeout = std::chrono::seconds(15);
  /// A call whose first message does not come so soon ends.
  Duration first_message_timeout = std::chrono::seconds(2);
  /// Calls whose first message has not come. One more ends the oldest, so that many who say nothing
  /// keep nobody out who speaks.
  size_t silent_calls_max = 256;
  /// A client that has been silent for so long is asked for a sign of life …
  Duration keepalive_interval = std::chrono::seconds(5);
  /// … and given up when none comes for so long.
  Duration keepalive_timeout = std::chrono::seconds(10);
};

/// Serves gRPC on a shard's loop: HTTP/2 by nghttp2, which clients in any language speak. Whoever
/// has an answer writes it to the socket, on whatever thread, so a token wakes nobody but its
/// reader (docs/adr/0031).
///
///   GrpcServer::Methods methods;
///   methods["/pkg.Service/Talk"] = [](auto call) { return std::make_shared<Talk>(call); };
///   STATOR_TRY(auto server, GrpcServer::listen(options, methods, shard, metrics));
///
/// Made, stopped and destroyed by one thread that is not the loop; the loop runs meanwhile.
class GrpcServer {
 public:
  /// A call has begun: on the loop. Null: finish() has been called, and nothing else matters.
  using Start = std::function<std::shared_ptr<GrpcCallHandler>(std::shared_ptr<GrpcServerCall>)>;
  using Methods = std::map<std::string, Start, std::less<>>;  ///< by path: /package.Service/Method

  /// Serves at once. Calls of other paths end with UNIMPLEMENTED. kIo or kInvalidArgument when the
  /// address cannot be bound.
  static Result<std::unique_ptr<GrpcServer>> listen(GrpcServerOptions options, Methods methods,
                                                    Shard& shard, Metrics& metrics);
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;
  /// Stops without grace.
  virtual ~GrpcServer() = default;

  virtual uint16_t port() const = 0;
  /// Takes nothing new, and closes connections as their calls end, at the latest after `grace`.
  /// Every handler has heard on_gone when this returns. Idempotent.
  virtual void stop(Duration grace) = 0;

 protected:
  GrpcServer() = default;
};

}  // namespace stator::net
