// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/net/detail/http2_session.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/request_parser.h"
#include "stator/net/http_request.h"

namespace stator::net::detail {

/// So many at once, and so many more per second. Starts full.
class RateBound {
 public:
  RateBound(double burst, double per_second)
      : burst_(burst), per_second_(per_second), left_(burst) {}
  /// False: more than that came.
  bool take(TimePoint now, double count);

 private:
  double burst_;
  double per_second_;
  double left_;
  std::optional<TimePoint> at_;
};

/// One request on a connection, as far as it has come, and its answer, as far as it has not gone.
struct Http2Stream {
  explicit Http2Stream(int32_t id_in) : id(id_in) {}

  const int32_t id;
  HttpRequest request;
  std::optional<Refusal> refusal;  ///< why no handler is to see it
  BodyRule rule;                   ///< once the head is complete
  std::string protocol;            ///< that a CONNECT asks for (RFC 8441)
  std::string arrived;             ///< of a body in pieces or a tunnel: what was not taken yet
  bool head = false;               ///< of the request is complete
  bool expects_continue = false;   ///< the client waits for "100" before the body
  bool ended = false;              ///< the client has said all
  bool closed = false;             ///< nothing comes or goes any more
  bool tunnel = false;             ///< its bytes are nobody's body

  OutputBuffer outgoing;
  bool answering = false;  ///< the head of the answer is on its way
  bool finished = false;   ///< nothing is added to `outgoing`
  bool starved = false;    ///< nghttp2 found nothing to send and waits to be told

 private:
  friend class Http2Requests;
  std::string method_;
  std::string target_;
  std::string authority_;
  std::vector<std::pair<std::string, std::string>> trailers_;
  size_t header_bytes_ = 0;
  size_t body_bytes_ = 0;
  bool started_ = false;  // the request has its start line
  bool touched_ = false;
};

/// The server's half of HTTP/2 on one connection, without I/O: bytes in, requests out, and answers
/// the other way.
///
/// P1  A stream is touched whenever there is news of it, and there until forget().
/// P2  Heads of more than `header_bytes_max` or `headers_max` and bodies of more than the rule
///     allows become a refusal; a head four times as large ends the connection.
/// P3  Clients that make and break streams, or send frames that carry nothing, faster than the
///     bounds below allow lose the connection.
///
/// P4  A stream whose number was passed over is not opened any more (RFC 9113, 5.1.1).
///
/// One thread. No function calls out, except HttpHandler::body_rule.
class Http2Requests {
 public:
  // P3. Streams that end by RST_STREAM, whichever side sends it: what a client may cancel.
  static constexpr double kResetsAtOnce = 1000;
  static constexpr double kResetsPerSecond = 100;
  // P3. PING, SETTINGS, PRIORITY, empty DATA and CONTINUATION and unknown frames. gRPC's clients
  // measure a connection with a PING per round trip.
  static constexpr double kIdleFramesAtOnce = 10'000;
  static constexpr double kIdleFramesPerSecond = 1'000;

  /// `limits` outlives it.
  Http2Requests(const ParserLimits& limits, uint32_t streams_max);
  Http2Requests(const Http2Requests&) = delete;
  Http2Requests& operator=(const Http2Requests&) = delete;

  enum class Outcome : uint8_t {
    kGoOn,
    kBroken,  ///< the client does not speak HTTP/2
    kFlood,   ///< P3
  };
  /// After anything but kGoOn send what there is to send, and close.
  Outcome receive(std::string_view bytes, TimePoint now);

  Http2Stream* find(int32_t id);
  /// Streams with news since the last call, in the order in which they had them.
  std::vector<int32_t> take_touched();
  /// Streams that are not closed.
  size_t open_streams() const { return open_; }
  /// After it is closed.
  void forget(int32_t id) { streams_.erase(id); }

  // Answers. Nothing happens on streams that are closed.
  void send_continue(Http2Stream& stream);
  /// The head; with kBody what is in `outgoing` follows until `finished`.
  enum class Follows : uint8_t { kBody, kNothing };
  void answer(Http2Stream& stream, std::span<const nghttp2_nv> fields, Follows follows);
  /// There is more in `outgoing`, or it is finished.
  void resume(Http2Stream& stream);
  /// Behind the body; before it is finished.
  void set_trailers(Http2Stream& stream, std::span<const HttpHeader> trailers);
  void reset(Http2Stream& stream, uint32_t error_code);

  /// Tells the client to use another connection for what comes next; what it has sent meanwhile is
  /// answered. kNotice, and a round trip later kFinal.
  enum class Goodbye : uint8_t { kNotice, kFinal };
  void go_away(Goodbye goodbye);
  /// The connection ends: every stream that is open with it.
  void give_up(uint32_t error_code);

  void append_output(OutputBuffer& out) { append_http2_output(session_.get(), out); }
  /// Nothing more can come or go.
  bool given_up() const { return http2_given_up(session_.get()); }
  bool has_output() const { return nghttp2_session_want_write(session_.get()) != 0; }

 private:
  struct Callbacks;

  void check_number(int32_t id);
  void touch(Http2Stream& stream);
  int take_field(Http2Stream& stream, std::string_view name, std::string_view value);
  void take_pseudo(Http2Stream& stream, std::string_view name, std::string_view value);
  void start_request(Http2Stream& stream);
  void on_head(Http2Stream& stream);
  void on_data(Http2Stream& stream, std::string_view bytes);
  void on_sent_end(int32_t id);
  void on_closed(int32_t id);
  ssize_t read_answer(Http2Stream& stream, uint8_t* to, size_t size, uint32_t* flags);

  const ParserLimits& limits_;
  FlatMap<int32_t, std::unique_ptr<Http2Stream>> streams_;
  std::vector<int32_t> touched_;
  size_t open_ = 0;
  int32_t last_number_ = -1;                       // of a client's streams; they are odd
  std::vector<std::pair<int32_t, int32_t>> gaps_;  // numbers passed over, without the ends
  size_t resets_ = 0;                              // since the last look
  size_t idle_frames_ = 0;                         // the same
  RateBound reset_bound_{kResetsAtOnce, kResetsPerSecond};
  RateBound idle_bound_{kIdleFramesAtOnce, kIdleFramesPerSecond};
  Http2Session session_;  // last: its end calls back
};

}  // namespace stator::net::detail
