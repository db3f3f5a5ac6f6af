// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/net/detail/grpc_codec.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/grpc_call.h"

namespace stator::net::detail {

/// The client's half of one gRPC call over an HTTP/2 connection of its own, without I/O: bytes in,
/// messages out, and the other way round. HTTP/2 itself (RFC 9113, 7541) is nghttp2's; the call is
/// that of gRPC's "HTTP2 protocol" document: length-prefixed messages in DATA frames, the outcome
/// in trailers, no compression.
///
/// T1  on_message and on_end come from inside receive() and end() only.
/// T2  on_end comes once, and nothing after it.
///
/// One thread. A listener may not destroy the stream from inside a callback.
class GrpcStream {
 public:
  struct Request {
    std::string authority;
    std::string path;
    bool tls = false;
    size_t message_bytes_max = 0;  ///< a longer one ends the call: the peer is broken or lies
  };
  GrpcStream(const Request& request, GrpcCallListener& listener);
  GrpcStream(const GrpcStream&) = delete;
  GrpcStream& operator=(const GrpcStream&) = delete;
  ~GrpcStream();

  /// Queues a message; append_output() sends it as far as the server's window goes.
  void send(std::string_view message);
  /// The server hears that nothing follows what was queued. No send() after it.
  void finish_sending();
  /// Bytes of messages that have not been handed out.
  size_t unsent_bytes() const { return outgoing_.size(); }
  void ping();
  /// Tells the server that the call is off. on_end does not follow.
  void cancel();

  void receive(std::string_view bytes);
  /// The connection is gone or given up: on_end, unless it has been.
  void end(GrpcOutcome outcome);
  bool ended() const { return ended_; }

  /// Appends what is to be sent now.
  void append_output(OutputBuffer& out);
  /// The server broke HTTP/2's rules and has been told so by what append_output() brought: nothing
  /// more can come.
  bool given_up() const { return http2_given_up(session_.get()); }

 private:
  struct Callbacks;

  void take_data(std::string_view bytes);
  void take_header(std::string_view name, std::string_view value);
  void on_end_of_stream();
  void on_broken_off(uint32_t http2_error);

  GrpcCallListener& listener_;
  Http2Session session_;
  int32_t stream_ = -1;

  GrpcMessageReader incoming_;
  OutputBuffer outgoing_{kGrpcCapacityKept};  // framed messages
  bool starved_ = false;                      // nghttp2 found nothing to send and waits to be told
  bool sent_all_ = false;                     // nothing follows what is in outgoing_

  int http_status_ = 0;
  bool grpc_answer_ = false;
  int grpc_status_ = -1;  // none yet
  std::string grpc_message_;
  bool ended_ = false;
};

}  // namespace stator::net::detail
