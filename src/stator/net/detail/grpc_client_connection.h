// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/net/detail/grpc_client_streams.h"
#include "stator/net/detail/grpc_socket.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/transport.h"
#include "stator/net/grpc_call.h"
#include "stator/net/shard.h"

namespace stator::net::detail {

/// A client's connection to a gRPC server, with its calls. On a shard's loop. Kept alive by its
/// owner, its calls and by what waits in the loop.
///
/// U1  Once closed nothing is read or written, every call has heard its end, and whatever waits in
///     the loop does nothing.
/// U2  HTTP/2 is not written from inside its reading or writing: what callbacks want to be written
///     goes out after it.
class GrpcClientConnection final : public GrpcSocket {
 public:
  struct Target {
    std::string address;  ///< host:port, [IPv6]:port
    std::shared_ptr<const ClientTls> tls;
    std::string server_name;  ///< whom the certificate must name; empty: the address' host
    Duration keepalive_interval{};
    Duration keepalive_timeout{};
    /// Until the server has said anything; nothing: that is for calls' users to bound.
    std::optional<Duration> connect_timeout;
  };
  GrpcClientConnection(Target target, Shard& shard);
  ~GrpcClientConnection() override = default;

  void start();
  /// Closes when there is no call any more.
  void release();

  /// Whether a call may begin: neither closed, nor does the server go away.
  bool usable() const { return !closed_ && streams_.takes_calls(); }
  bool closed() const { return closed_; }
  /// Whether the server has ever said anything.
  bool heard() const { return reads_ > 0; }
  /// Why it closed, and when.
  const std::string& failure() const { return failure_; }
  TimePoint closed_at() const { return closed_at_; }
  /// Open calls and those whose end the server has still to hear.
  size_t streams() const { return streams_.streams(); }

  /// A call, open until it ends or is destroyed; may outlive all others' interest in the
  /// connection. Null: it is not usable().
  std::unique_ptr<GrpcCall> begin(const GrpcClientStreams::Call& call, GrpcCallListener& listener);

 private:
  class Call;

  void find_server();
  void connect_next();
  void on_attempt_ended();
  void on_connected();
  Read read_some(std::span<char> buffer) override;
  void on_read() override { close_if_idle(); }
  /// Answers to pings, window updates; the handshake's next step.
  void on_pause(IoState /*why*/) override { flush(); }
  void on_writable() override;
  void on_broken(IoState how) override;
  void flush_soon();
  void flush();
  void watch();
  void send(int32_t stream, std::string_view message);
  void finish_sending(int32_t stream);
  void cancel(int32_t stream);
  void expire(int32_t stream, uint64_t reads_before);
  void close_if_idle();
  void fail(std::string reason);
  void tear_down();
  std::shared_ptr<GrpcClientConnection> self() {
    return std::static_pointer_cast<GrpcClientConnection>(shared_from_this());
  }

  const Target target_;
  const Endpoint server_;
  std::vector<SocketAddress> addresses_;  // of the server
  size_t next_address_ = 0;               // to try
  std::unique_ptr<Transport> transport_;  // once connected
  GrpcClientStreams streams_;
  OutputBuffer output_{kGrpcCapacityKept};
  Timer connect_timer_;
  uint64_t reads_ = 0;  // that brought anything
  std::string failure_;
  TimePoint closed_at_{};
  bool flush_posted_ = false;
  bool receiving_ = false;
  bool writing_ = false;
  bool released_ = false;
};

}  // namespace stator::net::detail
