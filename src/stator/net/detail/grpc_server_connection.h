// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/net/detail/grpc_server_streams.h"
#include "stator/net/detail/grpc_socket.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/socket.h"
#include "stator/net/detail/transport.h"
#include "stator/net/grpc_server.h"
#include "stator/net/shard.h"

namespace stator::net::detail {

class GrpcServerConnection;

struct GrpcServerMetrics {
  explicit GrpcServerMetrics(Metrics& metrics)
      : connections_open(
            metrics.gauge("stator_grpc_connections_open", "Open connections of gRPC clients.")),
        refused_connections(metrics.counter("stator_grpc_refused_connections_total",
                                            "Connections beyond the server's bound.")),
        broken_connections(metrics.counter(
            "stator_grpc_broken_connections_total",
            "Connections closed because the client broke HTTP/2's or TLS's rules.")),
        silent_connections(metrics.counter("stator_grpc_silent_connections_total",
                                           "Connections closed because the client gave no sign of "
                                           "life.")),
        silent_calls(metrics.counter("stator_grpc_silent_calls_total",
                                     "Calls ended because their first message did not come in "
                                     "time, or for newer ones while too many were silent.")),
        unfinished_bytes(metrics.gauge("stator_grpc_unfinished_bytes",
                                       "Held of gRPC messages whose end has not come.")),
        unfinished_calls(metrics.counter("stator_grpc_unfinished_calls_total",
                                         "Calls ended because too much was held of unfinished "
                                         "messages, or because a message did not end in time.")),
        accept_backoffs(
            metrics.counter("stator_grpc_accept_backoff_total",
                            "Pauses in accepting after an error, such as too many open files.")) {}
  Gauge connections_open;
  Counter refused_connections;
  Counter broken_connections;
  Counter silent_connections;
  Counter silent_calls;
  Gauge unfinished_bytes;
  Counter unfinished_calls;
  Counter accept_backoffs;
};

/// Calls whose first message has not come, oldest first. On the loop.
class SilentCalls {
 public:
  using Key = uint64_t;
  struct Call {
    GrpcServerConnection* connection = nullptr;  // removes its calls before it goes
    int32_t stream = 0;
  };
  Key add(const Call& call) {
    calls_.emplace(++last_, call);
    return last_;
  }
  void remove(Key key) { calls_.erase(key); }
  size_t size() const { return calls_.size(); }
  const Call& oldest() const { return calls_.begin()->second; }

 private:
  std::map<Key, Call> calls_;
  Key last_ = 0;
};

/// What the connections of a server share. Outlives them.
struct GrpcServerContext {
  Shard& shard;
  const GrpcServerOptions options;
  const GrpcServer::Methods methods;
  const GrpcServerMetrics metrics;
  /// On the loop, last of all.
  std::function<void(GrpcServerConnection&)> on_closed;
  std::shared_ptr<ByteBudget> budget;  // shared by connections, which may outlive the server
  SilentCalls silent_calls;            // the loop's
};

/// A client's connection. The loop reads; whoever has something to say writes.
///
///   loop ── read ──► streams_ ── arrivals ──► handlers (without the lock)
///   any thread ── send, flush ──► streams_ ──► output_ ──► socket
///
/// C1  `mutex_` guards all that reading and writing share, and no handler is called under it: who
///     holds it waits for nobody.
/// C2  What a writer cannot do itself (wait for the socket, tell handlers, close) it leaves to the
///     loop: wake_loop().
/// C3  After close() nothing is read or written, and every handler has heard on_gone.
class GrpcServerConnection final : public GrpcSocket {
 public:
  /// Null when out of memory or when the client has gone already.
  static std::shared_ptr<GrpcServerConnection> open(GrpcServerContext& context, FileDescriptor fd);

  GrpcServerConnection(GrpcServerContext& context, FileDescriptor fd,
                       std::unique_ptr<Transport> transport, std::string address);
  ~GrpcServerConnection() override = default;

  // The loop.
  void start();
  /// Takes no new calls, and closes when there are none.
  void go_away();
  void close();

 private:
  class Call;

  // The loop.
  Read read_some(std::span<char> buffer) override STATOR_EXCLUDES(mutex_);
  void on_read() override;
  void on_pause(IoState why) override;
  void on_writable() override { attend(); }
  void on_broken(IoState how) override;
  void attend();
  void deliver(GrpcArrival& arrival);
  void begin_call(const GrpcArrival& arrival);
  void await_first_message(Call& call, int32_t stream);
  void end_silent(int32_t stream, std::string reason);
  void watch_messages();
  void watch();
  void broken();

  // Any thread.
  void send(int32_t stream, std::string_view message) STATOR_EXCLUDES(mutex_);
  void flush_now() STATOR_EXCLUDES(mutex_);
  bool has_room(int32_t stream) STATOR_EXCLUDES(mutex_);
  size_t unsent_bytes(int32_t stream) STATOR_EXCLUDES(mutex_);
  void finish(int32_t stream, const GrpcOutcome& outcome) STATOR_EXCLUDES(mutex_);
  void hold(int32_t stream) STATOR_EXCLUDES(mutex_);
  void go_on(int32_t stream) STATOR_EXCLUDES(mutex_);
  void flush() STATOR_REQUIRES(mutex_);
  size_t waiting_bytes(int32_t stream) const STATOR_REQUIRES(mutex_);
  std::shared_ptr<GrpcServerConnection> self() {
    return std::static_pointer_cast<GrpcServerConnection>(shared_from_this());
  }
  std::vector<int32_t> take_roomy() STATOR_REQUIRES(mutex_);
  void count_unfinished() STATOR_REQUIRES(mutex_);
  bool loop_is_needed() const STATOR_REQUIRES(mutex_);
  void wake_loop_if_needed() STATOR_REQUIRES(mutex_);

  GrpcServerContext& context_;
  GrpcCaller caller_;  // names: set before the first call

  Mutex mutex_;
  const std::unique_ptr<Transport> transport_ STATOR_GUARDED_BY(mutex_);
  GrpcServerStreams streams_ STATOR_GUARDED_BY(mutex_);
  OutputBuffer output_ STATOR_GUARDED_BY(mutex_){kGrpcCapacityKept};
  std::vector<int32_t> roomless_ STATOR_GUARDED_BY(mutex_);  // streams to tell when there is room
  bool blocked_ STATOR_GUARDED_BY(mutex_) = false;           // the socket is full
  bool woken_ STATOR_GUARDED_BY(mutex_) = false;             // attend() is on its way
  bool shut_ STATOR_GUARDED_BY(mutex_) = false;              // C3
  size_t counted_bytes_ STATOR_GUARDED_BY(mutex_) = 0;       // in the metrics, as the next
  uint64_t counted_calls_ STATOR_GUARDED_BY(mutex_) = 0;

  // The loop's.
  std::map<int32_t, std::shared_ptr<Call>> calls_;
  Timer message_watch_;
  bool watching_messages_ = false;
  bool named_ = false;  // caller_.names are set
  bool delivering_ = false;
  bool understood_ = true;  // the client speaks HTTP/2
};

}  // namespace stator::net::detail
