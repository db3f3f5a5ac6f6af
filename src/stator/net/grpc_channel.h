// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/net/grpc_call.h"

namespace stator::net {

class Shard;

struct GrpcChannelOptions {
  std::string address;                             ///< host:port, [IPv6]:port
  std::shared_ptr<const ClientTls> tls = nullptr;  ///< null: plain
  std::string server_name = {};  ///< whom the certificate must name; empty: the address' host
  size_t message_bytes_max = size_t{16} * 1024 * 1024;  ///< of answers
  /// Until the server has said anything; with TLS, until after the handshake.
  Duration connect_timeout = std::chrono::seconds(5);
  /// After a server that could not be reached calls fail at once for so long, doubling up to
  /// `retry_max`.
  Duration retry_min = std::chrono::milliseconds(100);
  Duration retry_max = std::chrono::seconds(1);
  /// While calls wait, a server that has been silent for so long is asked for a sign of life …
  Duration keepalive_interval = std::chrono::seconds(5);
  /// … and given up when none comes for so long. A call whose deadline passes in silence asks, too.
  Duration keepalive_timeout = std::chrono::seconds(5);
  /// At once, those included whose cancellation waits to be sent. One more ends with
  /// RESOURCE_EXHAUSTED.
  size_t calls_max = 1024;
};

struct GrpcChannelCall {
  std::string path;  ///< /package.Service/Method
  /// After it the call ends with DEADLINE_EXCEEDED, here and at the server. Nothing: any time.
  std::optional<Duration> deadline = std::nullopt;
  GrpcMetadata metadata = {};
};

/// Calls to one server, on one connection and on a shard's loop. The connection is made when a call
/// wants it, and anew after it broke: calls that were open then end with UNAVAILABLE, later ones
/// have a new one.
///
///   auto channel = GrpcChannel::open({.address = "10.0.0.7:2379"}, shard);
///   auto call = channel->begin({.path = "/pkg.Service/Talk", .deadline = 3s}, listener);
///
/// Everything on the loop. Calls may outlive the channel.
class GrpcChannel {
 public:
  static std::unique_ptr<GrpcChannel> open(GrpcChannelOptions options, Shard& shard);
  GrpcChannel(const GrpcChannel&) = delete;
  GrpcChannel& operator=(const GrpcChannel&) = delete;
  virtual ~GrpcChannel() = default;

  /// Never fails: on_end says what did. `listener` outlives the call.
  virtual std::unique_ptr<GrpcCall> begin(GrpcChannelCall call, GrpcCallListener& listener) = 0;

 protected:
  GrpcChannel() = default;
};

/// One request, one answer. Destroying it cancels.
class GrpcUnaryCall final : GrpcCallListener {
 public:
  /// Once, on the loop, never from inside the constructor; may destroy the call. `answer` is empty
  /// unless the outcome is ok, and gone when this returns.
  using Done = std::move_only_function<void(const GrpcOutcome& outcome, std::string_view answer)>;

  GrpcUnaryCall(GrpcChannel& channel, GrpcChannelCall call, std::string_view request, Done done);
  GrpcUnaryCall(const GrpcUnaryCall&) = delete;
  GrpcUnaryCall& operator=(const GrpcUnaryCall&) = delete;
  ~GrpcUnaryCall() override = default;

 private:
  void on_message(std::string_view message) override;
  void on_end(GrpcOutcome outcome) override;

  Done done_;
  std::optional<std::string> answer_;
  std::unique_ptr<GrpcCall> call_;
};

}  // namespace stator::net
