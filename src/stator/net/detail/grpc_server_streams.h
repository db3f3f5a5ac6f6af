// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/net/detail/grpc_codec.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/grpc_call.h"
#include "stator/net/message_share.h"

namespace stator::net::detail {

/// What a client said on one of its calls.
struct GrpcArrival {
  enum class Kind : uint8_t {
    kCall,        ///< `bytes` is the path, `timeout` what the client waits
    kMessage,     ///< `bytes` is the message
    kHalfClosed,  ///< it has said all it wants
    kGone,        ///< the call is over, by whichever side
  };
  Kind kind = Kind::kCall;
  int32_t stream = 0;
  std::string bytes;
  std::optional<Duration> timeout;
};

/// The server's half of the gRPC calls on one HTTP/2 connection, without I/O: bytes in, arrivals
/// out, and answers the other way. The counterpart of GrpcStream.
///
/// R1  Of each call kCall arrives first and kGone last, both once.
/// R2  What a held call's client sends is kept as bytes; HTTP/2's window (kStreamWindowBytes)
///     bounds them.
/// R3  An answer's status goes out after its messages, and nothing after the status.
/// R4  What is held of unfinished messages and for held calls is counted in a share of the budget.
///     A call that would exceed it ends with RESOURCE_EXHAUSTED, and what was held of it is freed.
///
/// One thread at a time. Functions on a stream that is gone do nothing.
class GrpcServerStreams {
 public:
  static constexpr int32_t kStreamWindowBytes = kHttp2StreamWindowBytes;

  struct Limits {
    size_t message_bytes_max = 0;            ///< a longer one ends its call with RESOURCE_EXHAUSTED
    uint32_t streams_max = 0;                ///< calls at once; further ones wait at the client
    size_t unfinished_bytes_max = SIZE_MAX;  ///< R4, of this connection
    std::shared_ptr<ByteBudget> budget = nullptr;  ///< R4, shared by connections; null: none
  };
  explicit GrpcServerStreams(const Limits& limits);
  GrpcServerStreams(const GrpcServerStreams&) = delete;
  GrpcServerStreams& operator=(const GrpcServerStreams&) = delete;
  ~GrpcServerStreams();

  /// False: the client does not speak HTTP/2, and the connection is of no more use.
  bool receive(std::string_view bytes);
  bool has_arrivals() const { return !arrivals_.empty(); }
  std::vector<GrpcArrival> take_arrivals();

  /// Queues a message; append_output() sends it as far as the client's window goes.
  void send(int32_t stream, std::string_view message);
  /// Queues the call's status. Later send() and finish() do nothing.
  void finish(int32_t stream, const GrpcOutcome& outcome);
  /// Ends calls whose message was unfinished when this was called last, and still is. False if no
  /// message is unfinished.
  bool end_stale();
  /// R4: bytes held now, and calls ended for it or by end_stale().
  size_t unfinished_bytes() const { return share_.held_bytes(); }
  uint64_t ended_calls() const { return ended_calls_; }
  /// Bytes of messages that have not been handed out.
  size_t unsent_bytes(int32_t stream) const;
  /// No messages of this call arrive until go_on(); after that those that have come meanwhile do.
  void hold(int32_t stream);
  void go_on(int32_t stream);

  void ping();
  /// Takes no new calls; when those there are have ended, given_up() says so.
  void go_away();
  void append_output(OutputBuffer& out);
  /// Nothing more can come or go.
  bool given_up() const { return http2_given_up(session_.get()); }

 private:
  struct Stream {
    explicit Stream(size_t message_bytes_max) : incoming(message_bytes_max) {}
    std::string path;
    bool grpc = false;  // by its content type
    std::optional<Duration> timeout;
    GrpcMessageReader incoming;
    std::string held;
    size_t counted_bytes = 0;  // in share_
    bool stale = false;        // its message was unfinished at the last look
    bool holding = false;
    bool called = false;       // kCall has arrived, so kGone will
    bool half_closed = false;  // by the client
    bool half_close_told = false;
    OutputBuffer outgoing{kGrpcCapacityKept};
    bool answering = false;  // the head has been submitted
    bool starved = false;    // nghttp2 found nothing to send and waits to be told
    std::optional<GrpcOutcome> outcome;
  };
  struct Callbacks;

  Stream* find(int32_t id);
  void take_header(Stream& stream, std::string_view name, std::string_view value);
  void on_head(int32_t id, Stream& stream);
  void take_data(int32_t id, std::string_view bytes);
  void feed(int32_t id, Stream& stream, std::string_view bytes);
  void count_bytes(int32_t id, Stream& stream);
  void on_half_closed(int32_t id, Stream& stream);
  void on_sent_status(int32_t id);
  void on_closed(int32_t id);
  void refuse(int32_t id, const char* http_status);
  void submit_status(int32_t id, const GrpcOutcome& outcome, bool with_head);
  ssize_t read_answer(int32_t id, uint8_t* to, size_t size, uint32_t* flags);

  const Limits limits_;
  MessageShare share_;
  uint64_t ended_calls_ = 0;
  Http2Session session_;
  std::map<int32_t, Stream> streams_;
  std::vector<GrpcArrival> arrivals_;
};

}  // namespace stator::net::detail
