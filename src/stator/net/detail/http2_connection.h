// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/flat_map.h"
#include "stator/net/byte_budget.h"
#include "stator/net/detail/http2_requests.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/rate_watch.h"
#include "stator/net/detail/server_connection.h"
#include "stator/net/detail/server_context.h"
#include "stator/net/detail/socket.h"
#include "stator/net/detail/transport.h"
#include "stator/net/detail/watch.h"
#include "stator/net/http_server.h"

namespace stator::net::detail {

class Http2Connection;

/// One request of an HTTP/2 connection, from its head to the end of its answer.
///
///   kReceiving ──complete, or in pieces──► kAnswering ──respond/finish──► kSending ──► gone
///        │ refuse()                             │ client gone                ▲
///        └──────────────────────────────────────┼────────────────────────────┘
///                                               ▼ gone
class Http2Exchange final : public HttpExchange, public KnowsClient {
 public:
  Http2Exchange(Http2Connection& connection, Http2Stream& stream, ServerContext& context);
  ~Http2Exchange() = default;

  // HttpExchange
  HttpRequest& request() override { return stream_.request; }
  ByteLease take_body_lease() override;
  Shard& shard() override { return context_.shard; }
  std::string client_address() override;
  bool from_this_host() override;
  void set_observer(ExchangeObserver* observer) override;
  void respond(int status, std::string_view content_type, std::string_view body,
               std::span<const HttpHeader> headers) override;
  void respond_with(int status, std::string_view content_type, std::string body,
                    std::span<const HttpHeader> headers) override;
  void start_stream(int status, std::string_view content_type,
                    std::span<const HttpHeader> headers) override;
  bool start_tunnel(std::span<const HttpHeader> headers) override;
  std::string_view tunnel_protocol() const override { return stream_.protocol; }
  void write(std::string_view bytes) override;
  void finish() override { finish_with({}); }
  bool takes_trailers() const override { return true; }
  void finish_with(std::span<const HttpHeader> trailers) override;
  void abort() override;
  size_t buffered_bytes() const override { return stream_.outgoing.size(); }
  bool above_high_water() const override;

 private:
  friend class Http2Connection;
  enum class State : uint8_t { kReceiving, kAnswering, kSending };
  struct Head {
    int status = 200;
    std::string_view content_type;
    std::optional<size_t> content_bytes;
  };

  void attend();
  void receive_body();
  void deliver();
  void start();
  void refuse(const Refusal& refusal);
  void refuse_for_room();
  bool begin(const Head& head, std::span<const HttpHeader> headers);
  void end();
  void note_output();
  bool has_too_much() const;
  void check(TimePoint now);
  void check_body(TimePoint now);
  void gone(ClientGone reason);

  Http2Connection& connection_;
  Http2Stream& stream_;
  ServerContext& context_;
  ByteLease body_lease_;
  ExchangeObserver* observer_ = nullptr;
  RateWatch rate_;         // of the body, or of the answer
  size_t sent_bytes_ = 0;  // of the answer, since rate_ started
  TimePoint began_;        // its head was complete
  TimePoint moved_;        // when the client last took something, or there was nothing to take
  size_t waiting_ = 0;     // what it had not taken then
  std::optional<TimePoint> pressed_since_;
  State state_ = State::kReceiving;
  bool body_follows_ = false;  // of the stream under way
  bool overflowed_ = false;    // it has more output than it may: to be dropped
  bool end_told_ = false;
};

/// One client that speaks HTTP/2: its requests are answered at once and in any order.
///
/// H1  A stream of `requests_` whose head is complete has an exchange until the stream is closed.
/// H2  nghttp2 is asked for output only when all of the last has gone: what a client does not take
///     waits in its streams, and is in the server's budget.
/// H3  Handlers and observers are called from attend() and check_deadlines() only, never from
///     inside nghttp2, so they may do anything.
/// H4  As C3 of HttpConnection.
class Http2Connection final : public ServerConnection,
                              public WatchUser,
                              public std::enable_shared_from_this<Http2Connection> {
 public:
  Http2Connection(ServerContext& context, FileDescriptor fd, std::unique_ptr<Transport> transport);
  ~Http2Connection() override;

  /// Once, with what the client has said.
  void start(std::string_view bytes);

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
  bool is_closed() const override { return closed_; }

 private:
  friend class Http2Exchange;

  void wait_readable();
  void wait_writable();
  void on_readable() override;
  void on_writable() override;
  void take_bytes(std::string_view bytes);
  void attend();
  void attend_stream(int32_t id);
  void send_all();
  void go_away(TimePoint now);
  void end_connection(uint32_t error_code);
  void mark_dirty();
  void mark_urgent();
  void note_output();
  void note_held(size_t before, size_t after);
  std::string address();
  Http2Exchange* largest_body() const;
  void close();

  ServerContext& context_;
  Watch socket_;
  std::unique_ptr<Transport> transport_;
  Http2Requests requests_;
  FlatMap<int32_t, std::unique_ptr<Http2Exchange>> exchanges_;
  FlatMap<int32_t, std::unique_ptr<Http2Exchange>> gone_;  // after close_now()
  OutputBuffer output_{kGatherBytes};
  ByteLease output_lease_;
  size_t waiting_bytes_ = 0;  // in the streams' `outgoing`
  TimePoint idle_since_;
  TimePoint blocked_at_;  // when the kernel last took bytes or refused the first
  std::optional<TimePoint> flushed_at_;
  uint64_t begun_ = 0;                      // exchanges
  std::optional<uint64_t> leaving_at_;      // begun_ when the server began to leave
  std::optional<TimePoint> leaving_since_;  // of the first GOAWAY
  bool said_goodbye_ = false;               // the last GOAWAY is on its way
  bool ending_ = false;                     // nothing more is read
  bool urgent_ = false;                     // something to send that waits for no tick
  bool dirty_ = false;
  bool delayed_ = false;
  bool attending_ = false;
  bool closed_ = false;

  static constexpr size_t kGatherBytes = size_t{16} * 1024;
};

}  // namespace stator::net::detail
