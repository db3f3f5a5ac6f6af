// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::net {

class Shard;

/// How a call ended: the server's gRPC status, or kUnavailable's number and what broke the
/// connection.
struct GrpcOutcome {
  int status = 0;
  std::string message;
  bool ok() const { return status == 0; }
};

/// Header fields of a call beside gRPC's own, names in lower case.
using GrpcMetadata = std::vector<std::pair<std::string, std::string>>;

/// Told on the shard's loop, never from inside a call to the GrpcCall. May destroy it.
class GrpcCallListener {
 public:
  virtual ~GrpcCallListener() = default;
  /// The bytes are gone when this returns.
  virtual void on_message(std::string_view message) = 0;
  /// The last word, also when the server could not be reached.
  virtual void on_end(GrpcOutcome outcome) = 0;
};

/// Certificates of the client's side of TLS connections. Thread-safe once loaded.
class ClientTls {
 public:
  /// PEM files. kIo, naming the file, when one cannot be used. Servers must show a certificate that
  /// `ca` signed for the name they are called by; an empty `ca` is the system's authorities. With
  /// an empty `certificate` and `key` the client shows none.
  static Result<std::shared_ptr<const ClientTls>> load(const std::filesystem::path& certificate,
                                                       const std::filesystem::path& key,
                                                       const std::filesystem::path& ca);
  ClientTls(const ClientTls&) = delete;
  ClientTls& operator=(const ClientTls&) = delete;
  ~ClientTls();

  struct State;
  explicit ClientTls(std::unique_ptr<State> state);
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct GrpcCallOptions {
  std::string address;                             ///< host:port, [IPv6]:port
  std::string path;                                ///< /package.Service/Method
  std::shared_ptr<const ClientTls> tls = nullptr;  ///< null: plain
  std::string server_name = {};  ///< whom the certificate must name; empty: the address' host
  size_t message_bytes_max = size_t{16} * 1024 * 1024;
  /// A server that has been silent for so long is asked for a sign of life …
  Duration keepalive_interval = std::chrono::seconds(5);
  /// … and given up when none comes for so long.
  Duration keepalive_timeout = std::chrono::seconds(10);
};

/// One streaming gRPC call on a shard's loop: what the server says is handled by the thread that
/// reads it (docs/adr/0029). open() gives it a connection of its own; calls that share one come
/// from a GrpcChannel.
///
///   auto call = GrpcCall::open({.address = "10.0.0.7:9100", .path = "/pkg.Service/Talk"}, shard,
///   *this); call->send(bytes);
///
/// Reads at the loop's pace: a loop that is behind leaves bytes to the kernel and to HTTP/2's
/// window (4 MiB), and so to the server.
class GrpcCall {
 public:
  /// Never fails: on_end says what did. Called on the loop; `listener` outlives the call.
  static std::unique_ptr<GrpcCall> open(GrpcCallOptions options, Shard& shard,
                                        GrpcCallListener& listener);
  GrpcCall(const GrpcCall&) = delete;
  GrpcCall& operator=(const GrpcCall&) = delete;
  /// Cancels the call, if it has not ended.
  virtual ~GrpcCall() = default;

  /// Queues a message; what the turn queued goes out together. Without a bound of its own:
  /// see unsent_bytes().
  virtual void send(std::string_view message) = 0;
  /// Nothing more is sent: the server hears so after what is queued. For calls with one request.
  virtual void finish_sending() = 0;
  /// Bytes that wait because the server or the network is slow.
  virtual size_t unsent_bytes() const = 0;

 protected:
  GrpcCall() = default;
};

}  // namespace stator::net
