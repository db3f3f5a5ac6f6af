// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/net/byte_budget.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/rate_watch.h"
#include "stator/net/detail/request_parser.h"
#include "stator/net/detail/response_head.h"
#include "stator/net/detail/server_connection.h"
#include "stator/net/detail/server_context.h"
#include "stator/net/detail/socket.h"
#include "stator/net/detail/transport.h"
#include "stator/net/detail/watch.h"
#include "stator/net/http_server.h"

namespace stator::net::detail {

/// One client connection: receives a request, has it answered, starts over.
///
///   kIdle ──first byte──► kReceiving ──complete──► kAnswering ──respond()──► kSending ─► kIdle
///                             │ refuse()               │ client gone               │ close
///                             ▼                        ▼                           │
///                          kSending ─► kLingering ─► kClosed ◄─────────────────────┘
///
/// All output leaves in flush(), which the server calls at the end of a turn, on a flush tick or
/// when the socket becomes writable; reading and handlers never write, so nothing re-enters.
///
/// C1  kAnswering if and only if the handler owns the exchange; the observer is set only then.
/// C2  A read wait is pending in every state but kClosed, so that a lost client is noticed, except
///     while it sends with much in `stash_`: then a failing write tells. At most one read and one
///     write wait are pending.
/// C3  After kClosed nothing but the destructor runs; `context_` may be gone.
/// C4  What it keeps for its client is in the server's budgets: body and stash in one, output in
///     the other, as far as it exceeds ByteBudget::kFreeBytes each.
///
/// Memory while idle or streaming: this object (about 500 bytes), its place in the loop, the head
/// of the request being answered, and at most 512 bytes of output buffer.
/// shared_ptr because what waits in the loop keeps it alive.
/// A client that begins in HTTP/2 gets another connection on the same socket: hand_over().
class HttpConnection final : public HttpExchange,
                             public ServerConnection,
                             public KnowsClient,
                             public WatchUser,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(ServerContext& context, FileDescriptor fd, std::unique_ptr<Transport> transport);
  ~HttpConnection() override = default;

  /// Once, after construction. False when the loop cannot watch the socket: drop the connection.
  bool start(Duration first_byte_timeout);
  struct Socket {
    FileDescriptor fd;
    std::unique_ptr<Transport> transport;
  };
  /// Gives the socket away, and is closed.
  Socket hand_over();

  // ServerConnection
  void flush_turn() override;
  void flush() override;
  void check_deadlines(TimePoint now) override;
  void close_if_idle() override;
  void close_now(ClientGone reason) override;
  Holding held_body() const override;
  void refuse_for_room() override;
  Holding held_output() const override { return {output_lease_.charged(), blocked_at_}; }
  void drop_slow_client() override;
  bool is_closed() const override { return state_ == State::kClosed; }
  bool from_this_host() override;

  // HttpExchange
  HttpRequest& request() override { return request_; }
  ByteLease take_body_lease() override;
  Shard& shard() override { return context_.shard; }
  std::string client_address() override;
  void set_observer(ExchangeObserver* observer) override;
  void respond(int status, std::string_view content_type, std::string_view body,
               std::span<const HttpHeader> headers) override;
  void respond_with(int status, std::string_view content_type, std::string body,
                    std::span<const HttpHeader> headers) override;
  void start_stream(int status, std::string_view content_type,
                    std::span<const HttpHeader> headers) override;
  void write(std::string_view bytes) override;
  void finish() override;
  bool start_tunnel(std::span<const HttpHeader> headers) override;
  void abort() override;
  size_t buffered_bytes() const override { return output_.size(); }
  bool above_high_water() const override {
    return output_.size() > context_.config.stream_high_water_bytes;
  }

 private:
  enum class State : uint8_t { kIdle, kReceiving, kAnswering, kSending, kLingering, kClosed };
  enum class Framing : uint8_t { kNone, kChunked, kUntilClose, kNoBody, kTunnel };

  void wait_readable();
  void wait_writable();
  void on_readable() override;
  void on_writable() override;
  void resume_reading();
  void take_bytes(std::string_view bytes);
  bool is_http2_start(std::string_view& bytes);
  void take_request_bytes(std::string_view bytes);
  void take_tunnel_bytes(std::string_view bytes);
  void parse_stash();
  size_t parse(std::string_view bytes);
  bool hold_request();
  void stash(std::string_view bytes);
  void stash_pipelined(std::string_view bytes);
  void clear_stash();
  bool stash_full() const;
  void on_parsing_progress();
  void start_exchange();
  void end_exchange();
  void refuse(Refusal refusal);
  void on_end_of_input();
  bool begin_response(ResponseHead head, size_t body_bytes, std::span<const HttpHeader> headers);
  void append_response_head(ResponseHead head, std::span<const HttpHeader> headers);
  void mark_dirty();
  void send_all();
  void check_overflow();
  void check_pressure(TimePoint now);
  void on_answer_sent();
  void start_lingering();
  void check_body(TimePoint now);
  void close();

  ServerContext& context_;
  Watch socket_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<RequestParser> parser_;  // kReceiving only
  HttpRequest request_;                    // kAnswering only
  std::string stash_;                      // bytes of the next requests
  size_t stash_read_ = 0;                  // of them already parsed
  ByteLease body_lease_;
  ByteLease stash_lease_;
  ByteLease output_lease_;
  RateWatch rate_;         // of the body, or of the answer
  size_t sent_bytes_ = 0;  // of the answer, since rate_ started
  OutputBuffer output_;
  ExchangeObserver* observer_ = nullptr;
  TimePoint deadline_;                      // kIdle, kReceiving, kLingering
  TimePoint headers_at_;                    // kReceiving
  std::optional<TimePoint> flushed_at_;     // last flush of this exchange that sent something
  TimePoint blocked_at_;                    // when the kernel last took bytes or refused the first
  std::optional<TimePoint> pressed_since_;  // above high water since
  size_t lingered_bytes_ = 0;
  uint64_t requests_ = 0;
  uint8_t preface_matched_ = 0;  // of the first bytes; kNoPreface: they are none of HTTP/2
  State state_ = State::kIdle;
  Framing framing_ = Framing::kNone;  // of the stream under way
  bool head_request_ = false;
  bool http_1_0_ = false;
  bool keep_alive_ = true;    // what the client wants
  bool close_after_ = false;  // close when the output is sent
  bool linger_ = false;       // unread input: say goodbye before closing
  bool body_clock_started_ = false;
  bool overflowed_ = false;  // it has more output than it may: to be dropped
  bool dirty_ = false;
  bool delayed_ = false;
  bool read_ended_ = false;  // the client sends nothing more
};

}  // namespace stator::net::detail
