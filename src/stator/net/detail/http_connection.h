// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/request_parser.h"
#include "stator/net/detail/response_head.h"
#include "stator/net/detail/server_context.h"
#include "stator/net/detail/socket.h"
#include "stator/net/detail/transport.h"
#include "stator/net/http_server.h"

namespace stator::net::detail {

/// One client connection: receives a request, has it answered, starts over.
///
///   kIdle ──first byte──► kReceiving ──complete──► kAnswering ──respond/finish──► kSending ──►
///   kIdle
///                             │ refuse()                │ client gone                │ close
///                             wanted └────────► kSending ──────┼──────► kLingering ─────────┤
///                                                       └──────────► kClosed ◄───────┘
///
/// All output leaves in flush(), which the server calls at the end of a turn, on a flush tick or
/// when the socket becomes writable; reading and handlers never write, so nothing re-enters.
///
/// C1  kAnswering if and only if the handler owns the exchange; the observer is set only then.
/// C2  A read wait is pending in every state but kClosed, so that a lost client is noticed, except
///     while `stash_` is full. At most one read and one write wait are pending.
/// C3  After kClosed nothing but the destructor runs; `context_` may be gone.
///
/// Memory while idle or streaming: this object (about 400 bytes), Asio's descriptor state, the head
/// of the request being answered, and at most 512 bytes of output buffer.
/// shared_ptr because a cancelled wait completes after its connection was closed.
class HttpConnection final : public HttpExchange,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(ServerContext& context, FileDescriptor fd, std::unique_ptr<Transport> transport);
  ~HttpConnection() = default;

  /// Once, after construction. False when the loop cannot watch the socket: drop the connection.
  bool start(Duration first_byte_timeout);
  /// Sends what is due; at the end of a turn.
  void flush_turn();
  /// Sends what is there, recently flushed or not.
  void flush();
  /// Ends what has waited too long.
  void check_deadlines(TimePoint now);
  /// Closes unless a request is under way, or the first one may be, which must come soon.
  void close_if_idle();
  void close_now(ClientGone reason);
  bool is_closed() const { return state_ == State::kClosed; }
  size_t position = 0;  ///< in the server's list

  // HttpExchange
  HttpRequest& request() override { return request_; }
  Shard& shard() override { return context_.shard; }
  void set_observer(ExchangeObserver* observer) override;
  void respond(int status, std::string_view content_type, std::string_view body,
               std::span<const HttpHeader> headers) override;
  void start_stream(int status, std::string_view content_type,
                    std::span<const HttpHeader> headers) override;
  void write(std::string_view bytes) override;
  void finish() override;
  void abort() override;
  size_t buffered_bytes() const override { return output_.size(); }
  bool above_high_water() const override {
    return output_.size() > context_.config.stream_high_water_bytes;
  }

 private:
  enum class State : uint8_t { kIdle, kReceiving, kAnswering, kSending, kLingering, kClosed };
  enum class Framing : uint8_t { kNone, kChunked, kUntilClose, kNoBody };

  void wait_readable();
  void wait_writable();
  void on_readable();
  void resume_reading();
  void read_again();
  void take_bytes(std::string_view bytes);
  void parse(std::string_view bytes);
  void on_parsing_progress();
  void start_exchange();
  void end_exchange();
  void refuse(Refusal refusal);
  void on_end_of_input();
  void append_response_head(ResponseHead head, std::span<const HttpHeader> headers);
  void mark_dirty();
  void send_all();
  void check_pressure(TimePoint now);
  void on_answer_sent();
  void start_lingering();
  void drop_slow_client();
  void close();

  ServerContext& context_;
  boost::asio::posix::stream_descriptor socket_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<RequestParser> parser_;  // kReceiving only
  HttpRequest request_;                    // kAnswering only
  std::string stash_;                      // bytes of the next request, or body bytes to discard
  OutputBuffer output_;
  ExchangeObserver* observer_ = nullptr;
  TimePoint deadline_;                      // kIdle, kReceiving, kLingering
  TimePoint headers_at_;                    // kReceiving
  std::optional<TimePoint> flushed_at_;     // last flush of this exchange that sent something
  TimePoint blocked_at_;                    // when the kernel last took bytes or refused the first
  std::optional<TimePoint> pressed_since_;  // above high water since
  size_t lingered_bytes_ = 0;
  uint64_t requests_ = 0;
  State state_ = State::kIdle;
  Framing framing_ = Framing::kNone;  // of the stream under way
  bool head_request_ = false;
  bool http_1_0_ = false;
  bool keep_alive_ = true;    // what the client wants
  bool close_after_ = false;  // close when the output is sent
  bool linger_ = false;       // unread input: say goodbye before closing
  bool body_clock_started_ = false;
  bool dirty_ = false;
  bool delayed_ = false;
  bool read_ended_ = false;  // the client sends nothing more
  bool read_waiting_ = false;
  bool write_waiting_ = false;
};

}  // namespace stator::net::detail
