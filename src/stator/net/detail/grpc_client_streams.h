// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/net/detail/grpc_codec.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/grpc_call.h"

namespace stator::net::detail {

/// The client's half of the gRPC calls on one HTTP/2 connection, without I/O: bytes in, messages
/// out, and the other way round. HTTP/2 itself (RFC 9113, 7541) is nghttp2's; a call is that of
/// gRPC's "HTTP2 protocol" document: length-prefixed messages in DATA frames, the outcome in
/// trailers, no compression. The counterpart of GrpcServerStreams.
///
/// T1  on_message and on_end come from inside receive(), append_output(), end() and end_all() only.
/// T2  on_end comes once per call, nothing after it, and nothing after cancel().
///
/// One thread. From inside a callback everything may be called but receive() and append_output().
/// Functions on a call that is over do nothing.
class GrpcClientStreams {
 public:
  struct Call {
    std::string path;
    size_t message_bytes_max = 0;  ///< a longer one ends the call: the peer is broken or lies
    GrpcMetadata metadata = {};
    std::optional<Duration> timeout = std::nullopt;  ///< that the server is told
  };
  GrpcClientStreams(std::string authority, bool tls);
  GrpcClientStreams(const GrpcClientStreams&) = delete;
  GrpcClientStreams& operator=(const GrpcClientStreams&) = delete;
  ~GrpcClientStreams();

  /// The new call's number; 0: this connection takes none any more. `listener` outlives the call.
  int32_t begin(const Call& call, GrpcCallListener& listener);
  /// Queues a message; append_output() sends it as far as the server's window goes.
  void send(int32_t stream, std::string_view message);
  /// The server hears that nothing follows what was queued. No send() after it.
  void finish_sending(int32_t stream);
  /// Bytes of the call's messages that have not been handed out.
  size_t unsent_bytes(int32_t stream) const;
  /// Tells the server that the call is off. on_end does not follow.
  void cancel(int32_t stream);
  /// The same, but on_end follows at once.
  void end(int32_t stream, GrpcOutcome outcome);
  /// The connection is gone or given up: on_end for all calls.
  void end_all(const GrpcOutcome& outcome);

  void ping();
  void receive(std::string_view bytes);
  /// Appends what is to be sent now.
  void append_output(OutputBuffer& out);

  /// Calls that have not ended.
  size_t open_calls() const { return open_calls_; }
  /// Open calls and those whose end the server has still to hear.
  size_t streams() const { return streams_.size(); }
  /// False once the server goes away.
  bool takes_calls() const;
  /// The server broke HTTP/2's rules and has been told so by what append_output() brought, or it
  /// went away and all is done: nothing more can come.
  bool given_up() const { return http2_given_up(session_.get()); }

 private:
  struct Stream {
    Stream(size_t message_bytes_max, GrpcCallListener& to)
        : listener(&to), incoming(message_bytes_max) {}
    GrpcCallListener* listener;  // null: over
    GrpcMessageReader incoming;
    OutputBuffer outgoing{kGrpcCapacityKept};  // framed messages
    bool starved = false;                      // nghttp2 found nothing to send and waits to be told
    bool sent_all = false;                     // nothing follows what is in outgoing
    int http_status = 0;
    bool grpc_answer = false;
    int grpc_status = -1;  // none yet
    std::string grpc_message;
  };
  struct Callbacks;

  Stream* find(int32_t id);
  void resume(int32_t id, Stream& stream);
  void reset(int32_t id);
  void take_data(int32_t id, Stream& stream, std::string_view bytes);
  static void take_header(Stream& stream, std::string_view name, std::string_view value);
  void on_end_of_stream(int32_t id, Stream& stream);
  void on_closed(int32_t id, uint32_t http2_error);
  void tell_end(Stream& stream, GrpcOutcome outcome);

  const std::string authority_;
  const bool tls_;
  Http2Session session_;
  std::map<int32_t, Stream> streams_;  // until HTTP/2 has closed them
  size_t open_calls_ = 0;
};

}  // namespace stator::net::detail
