// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/http_connection.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "stator/core/assert.h"
#include "stator/net/client_origin.h"

namespace stator::net::detail {
namespace {

using std::chrono::seconds;

// Reads of one connection in one turn (1 MiB with the 64 KiB buffer); then the others have theirs.
constexpr int kReadsPerTurn = 16;
// Written for one connection in one turn, to a client that takes as much; then the others have
// theirs.
constexpr size_t kSentPerTurn = 1024 * 1024;
// Pipelined input kept while a request is answered. Beyond, the connection is closed: reading must
// go on, or nobody would notice that the client has gone. Half of it is read while an answer is
// sent, where a failing write tells, too.
constexpr size_t kStashMax = 512 * 1024;
// A slower body than this, after body_timeout, is not an upload.
constexpr size_t kBodyBytesPerSecond = 16 * 1024;
// What holds less may come and go at any rate (transfer_bytes_per_second_min).
constexpr size_t kRateFromBytes = 1024 * 1024;
constexpr std::string_view kRetryAfterSeconds = "1";
// After a refusal unread input is read and dropped, because closing with input unread would reset
// the connection and destroy the answer on its way. So much of it, and twice the largest body that
// is taken: many clients send all of a body that is a little too large before they read.
constexpr size_t kLingerBytes = 4UL * 1024 * 1024;
constexpr Duration kLingerTime = seconds(2);
// For the first request of a connection that was opened as the server began to stop.
constexpr Duration kFirstRequestTime = seconds(1);
// What every HTTP/2 connection begins with (RFC 9113, 3.4), as far as no other request does.
constexpr std::string_view kHttp2Start = "PRI * HTTP/2.0";
constexpr uint8_t kNoPreface = 255;
// A delayed stream with this much to send does not wait for the tick.
constexpr size_t kFlushWithoutDelayBytes = 64 * 1024;

}  // namespace

HttpConnection::HttpConnection(ServerContext& context, FileDescriptor fd,
                               std::unique_ptr<Transport> transport)
    : context_(context),
      socket_(context.shard.loop()),
      transport_(std::move(transport)),
      body_lease_(context.budgets->bodies),
      stash_lease_(context.budgets->bodies),
      output_lease_(context.budgets->output) {
  socket_.open(std::move(fd)).ignore("start() sees to it");
}

bool HttpConnection::start(Duration first_byte_timeout) {
  if (!socket_.is_watched()) {
    return false;
  }
  deadline_ = context_.shard.now() + first_byte_timeout;
  wait_readable();
  return true;
}

// ---- reading

void HttpConnection::wait_readable() {
  if (!socket_.waits_readable() && !read_ended_ && !stash_full()) {
    socket_.wait_readable(shared_from_this());
  }
}

void HttpConnection::on_readable() {
  std::vector<char>& buffer = context_.read_buffer;
  for (int reads = 0; reads < kReadsPerTurn; ++reads) {
    const IoResult got = transport_->read(buffer);
    switch (got.state) {
      case IoState::kDone:
        break;
      case IoState::kWantRead:
        return wait_readable();
      case IoState::kWantWrite:
        return wait_writable();
      case IoState::kClosed:
        return on_end_of_input();
      case IoState::kFailed:
        return close_now(ClientGone::kDisconnected);
    }
    take_bytes({buffer.data(), got.bytes});
    if (is_closed()) {
      return;
    }
    if (transport_->drained(buffer.size(), got.bytes) || stash_full()) {
      return wait_readable();
    }
  }
  resume_reading();
}

void HttpConnection::on_end_of_input() {
  if (state_ == State::kSending) {
    // The client said all it had to say and may still read the answer that is on its way.
    read_ended_ = true;
    linger_ = false;
    close_after_ = true;
    return;
  }
  close_now(ClientGone::kDisconnected);
}

// Goes on with what is there (stashed, or still in the transport) in the next turn.
void HttpConnection::resume_reading() {
  context_.shard.defer([self = shared_from_this()] {
    if (self->is_closed()) {
      return;
    }
    if (self->state_ == State::kIdle && !self->stash_.empty()) {
      self->parse_stash();
    }
    if (!self->is_closed() && !self->socket_.waits_readable() && !self->read_ended_) {
      self->on_readable();
    }
  });
}

void HttpConnection::take_bytes(std::string_view bytes) {
  switch (state_) {
    case State::kIdle:
    case State::kReceiving:
      return take_request_bytes(bytes);
    case State::kLingering:
      lingered_bytes_ += bytes.size();
      if (lingered_bytes_ > kLingerBytes + 2 * context_.config.body_bytes_max) {
        close();
      }
      return;
    case State::kAnswering:
      if (framing_ == Framing::kTunnel) {
        return take_tunnel_bytes(bytes);
      }
      [[fallthrough]];
    case State::kSending:
      if (!linger_) {  // of a refused request nothing is worth keeping
        stash_pipelined(bytes);
      }
      return;
    case State::kClosed:
      return;
  }
}

// True: the client speaks HTTP/2, and `bytes` are all that it has said.
bool HttpConnection::is_http2_start(std::string_view& bytes) {
  if (preface_matched_ == kNoPreface || context_.config.http2_streams_max == 0) {
    return false;
  }
  const bool chosen = preface_matched_ == 0 && transport_->protocol() == "h2";
  const std::string_view expected = kHttp2Start.substr(preface_matched_);
  const std::string_view got = bytes.substr(0, expected.size());
  if (!chosen && !expected.starts_with(got)) {
    preface_matched_ = kNoPreface;
    return false;
  }
  if (!chosen && got.size() < expected.size()) {
    preface_matched_ += static_cast<uint8_t>(got.size());
    return false;
  }
  if (preface_matched_ > 0) {
    clear_stash();
    stash(kHttp2Start.substr(0, preface_matched_));
    stash(bytes);
    bytes = stash_;
  }
  return true;
}

HttpConnection::Socket HttpConnection::hand_over() {
  FileDescriptor fd = socket_.release();
  parser_.reset();
  clear_stash();
  state_ = State::kClosed;
  return {std::move(fd), std::move(transport_)};
}

/// What the client says in the protocol that it changed to.
void HttpConnection::take_tunnel_bytes(std::string_view bytes) {
  if (observer_ != nullptr) {
    observer_->on_body(bytes);
  }
}

void HttpConnection::take_request_bytes(std::string_view bytes) {
  if (requests_ == 0 && is_http2_start(bytes)) {
    const std::string all(bytes);
    return context_.go_on_in_http2(*this, all);
  }
  const size_t consumed = parse(bytes);
  if (parser_ != nullptr && parser_->complete()) {
    stash(bytes.substr(consumed));
    start_exchange();
  }
}

void HttpConnection::parse_stash() {
  const size_t consumed = parse(std::string_view(stash_).substr(stash_read_));
  stash_read_ += consumed;
  if (parser_ == nullptr || stash_read_ == stash_.size()) {
    clear_stash();
  }
  if (parser_ != nullptr && parser_->complete()) {
    start_exchange();
  }
}

// Returns how much of `bytes` belongs to the request. Without a parser afterwards it is refused.
size_t HttpConnection::parse(std::string_view bytes) {
  if (parser_ == nullptr) {
    parser_ = std::make_unique<RequestParser>(context_.limits);
  }
  const size_t consumed = parser_->feed(bytes);
  if (parser_->refusal()) {
    const Refusal refusal = *parser_->refusal();
    refuse(refusal);
  } else if (hold_request()) {
    on_parsing_progress();
  }
  return consumed;
}

// False: there was no room, and the request is refused. A head counts until its body is larger:
// thousands of clients may send the last line of theirs never.
bool HttpConnection::hold_request() {
  const size_t bytes = std::max(parser_->head_bytes_received(), parser_->body_bytes_received());
  if (body_lease_.try_resize(bytes)) {
    return true;
  }
  context_.make_room(*this);
  if (body_lease_.try_resize(bytes)) {
    return true;
  }
  refuse_for_room();
  return false;
}

Holding HttpConnection::held_body() const {
  return {state_ == State::kReceiving ? body_lease_.charged() : 0, headers_at_};
}

void HttpConnection::refuse_for_room() {
  context_.budgets->bodies.count_refusal();
  refuse({503,
          "too many bytes of requests are here at the moment (http.bodies_bytes_max), retry "
          "shortly"});
}

ByteLease HttpConnection::take_body_lease() {
  return std::exchange(body_lease_, ByteLease(context_.budgets->bodies));
}

void HttpConnection::stash(std::string_view bytes) {
  if (stash_read_ * 2 >= stash_.size()) {
    stash_.erase(0, stash_read_);
    stash_read_ = 0;
  }
  stash_.append(bytes);
  stash_lease_.resize(stash_.size());
}

void HttpConnection::stash_pipelined(std::string_view bytes) {
  const bool fits = stash_lease_.try_resize(stash_.size() + bytes.size());
  stash(bytes);
  if (fits && (state_ != State::kAnswering || stash_.size() - stash_read_ <= kStashMax)) {
    return;
  }
  if (!fits) {
    context_.budgets->bodies.count_refusal();
  }
  context_.metrics.rejected_pipelined.add();
  close_now(ClientGone::kDisconnected);
}

void HttpConnection::clear_stash() {
  stash_ = std::string();
  stash_read_ = 0;
  stash_lease_.release();
}

bool HttpConnection::stash_full() const {
  return state_ == State::kSending && stash_.size() - stash_read_ >= kStashMax / 2;
}

// Moves the deadline: headers have a fixed time, bodies earn time by arriving.
void HttpConnection::on_parsing_progress() {
  const TimePoint now = context_.shard.now();
  if (state_ == State::kIdle && parser_->started()) {
    state_ = State::kReceiving;
    body_clock_started_ = false;
    deadline_ = now + context_.config.header_timeout;
  }
  if (!parser_->headers_complete()) {
    return;
  }
  if (!body_clock_started_) {
    body_clock_started_ = true;
    headers_at_ = now;
    rate_.start(now);
    if (parser_->expects_continue() && !parser_->complete() &&
        parser_->body_bytes_received() == 0) {
      output_.append_raw("HTTP/1.1 100 Continue\r\n\r\n");
      mark_dirty();
    }
  }
  const Duration earned =
      context_.config.body_timeout + seconds(parser_->body_bytes_received() / kBodyBytesPerSecond);
  deadline_ = headers_at_ + std::min(earned, context_.config.body_time_max);
}

void HttpConnection::start_exchange() {
  request_ = parser_->take_request();
  keep_alive_ = parser_->keep_alive();
  http_1_0_ = parser_->is_http_1_0();
  parser_.reset();
  head_request_ = request_.method() == "HEAD";
  framing_ = Framing::kNone;
  flushed_at_.reset();  // the head of a stream never waits for a tick
  state_ = State::kAnswering;
  ++requests_;
  context_.open_exchanges.fetch_add(1, std::memory_order_relaxed);
  if (context_.cors.is_preflight(request_)) {
    respond(204, {}, {}, make_preflight_headers(request_));
    return;
  }
  context_.metrics.requests.add();
  context_.handler.on_request(*this);
}

void HttpConnection::end_exchange() {
  observer_ = nullptr;
  state_ = State::kSending;
  pressed_since_.reset();
  rate_.start(context_.shard.now());
  sent_bytes_ = 0;
  request_ = HttpRequest();
  body_lease_.release();
  context_.open_exchanges.fetch_sub(1, std::memory_order_relaxed);
  mark_dirty();
}

void HttpConnection::refuse(Refusal refusal) {
  context_.metrics.count_refusal(refusal.status);
  if (refusal.not_http && requests_ == 0) {
    return close();
  }
  state_ = State::kSending;
  keep_alive_ = false;
  linger_ = true;
  static const HttpRequest kUnread;
  const HttpRequest& head = parser_ == nullptr ? kUnread : parser_->request();
  const std::string body = context_.handler.refusal_body(head, refusal.status, refusal.message);
  const HttpHeader retry_after{"retry-after", kRetryAfterSeconds};
  append_response_head(
      {.status = refusal.status, .content_type = "application/json", .content_bytes = body.size()},
      std::span(&retry_after, refusal.status == 503 ? 1 : 0));
  output_.append_raw(body);
  parser_.reset();
  body_lease_.release();
  mark_dirty();
}

// ---- answering

bool HttpConnection::from_this_host() {
  return comes_from_this_host(request_, client_address());
}

std::string HttpConnection::client_address() {
  return client_host(socket_.fd());
}

void HttpConnection::set_observer(ExchangeObserver* observer) {
  STATOR_ASSERT(state_ == State::kAnswering, "E1: the exchange is over");
  observer_ = observer;
}

void HttpConnection::append_response_head(ResponseHead head, std::span<const HttpHeader> headers) {
  // What the client has sent already, pipelined, is answered first.
  close_after_ = !keep_alive_ || (context_.send_away && stash_.empty());
  if (close_after_) {
    head.connection = ConnectionHeader::kClose;
  } else if (http_1_0_) {
    head.connection = ConnectionHeader::kKeepAlive;
  }
  head.date_line = context_.date_line();
  if (request_.notes() != nullptr) {
    request_.notes()->on_status(head.status);
  }
  head.cors_lines = context_.cors.lines_for(parser_ != nullptr ? parser_->request() : request_);
  std::string text;
  append_head(text, head, headers);
  output_.append_raw(text);
}

// Whether the body is to follow.
bool HttpConnection::begin_response(ResponseHead head, size_t body_bytes,
                                    std::span<const HttpHeader> headers) {
  STATOR_ASSERT(state_ == State::kAnswering && framing_ == Framing::kNone,
                "E1: one answer per exchange");
  const bool bodiless = is_bodiless(head.status);
  if (!bodiless) {
    head.content_bytes = body_bytes;
  }
  append_response_head(head, headers);
  return !bodiless && !head_request_;
}

void HttpConnection::respond(int status, std::string_view content_type, std::string_view body,
                             std::span<const HttpHeader> headers) {
  if (begin_response({.status = status, .content_type = content_type}, body.size(), headers)) {
    output_.append_raw(body);
  }
  end_exchange();
}

void HttpConnection::respond_with(int status, std::string_view content_type, std::string body,
                                  std::span<const HttpHeader> headers) {
  if (begin_response({.status = status, .content_type = content_type}, body.size(), headers)) {
    output_.append_body(std::move(body));
  }
  end_exchange();
}

void HttpConnection::start_stream(int status, std::string_view content_type,
                                  std::span<const HttpHeader> headers) {
  STATOR_ASSERT(state_ == State::kAnswering && framing_ == Framing::kNone,
                "E1: one answer per exchange");
  framing_ = http_1_0_ ? Framing::kUntilClose : Framing::kChunked;
  keep_alive_ = keep_alive_ && framing_ == Framing::kChunked;
  append_response_head(
      {.status = status, .content_type = content_type, .chunked = framing_ == Framing::kChunked},
      headers);
  if (head_request_ || is_bodiless(status)) {
    framing_ = Framing::kNoBody;
  }
  mark_dirty();
}

bool HttpConnection::start_tunnel(std::span<const HttpHeader> headers) {
  STATOR_ASSERT(state_ == State::kAnswering && framing_ == Framing::kNone,
                "E1: one answer per exchange");
  if (http_1_0_) {
    return false;
  }
  framing_ = Framing::kTunnel;
  append_response_head({.status = 101, .upgrades = true}, headers);
  close_after_ = true;
  mark_dirty();
  if (!stash_.empty()) {
    // What came behind the request is told after the handler is back.
    context_.shard.defer([self = shared_from_this()] {
      if (self->state_ == State::kAnswering && self->framing_ == Framing::kTunnel) {
        const std::string bytes = self->stash_.substr(self->stash_read_);
        self->clear_stash();
        self->take_tunnel_bytes(bytes);
      }
    });
  }
  return true;
}

void HttpConnection::write(std::string_view bytes) {
  STATOR_ASSERT(state_ == State::kAnswering && framing_ != Framing::kNone,
                "E1: write comes between start_stream and finish");
  if (overflowed_) {
    return;  // the client is dropped at the end of the turn
  }
  if (framing_ == Framing::kChunked) {
    output_.append_chunk_data(bytes);
  } else if (framing_ == Framing::kUntilClose || framing_ == Framing::kTunnel) {
    output_.append_raw(bytes);
  }
  check_overflow();
  mark_dirty();
}

// One turn may bring any number of writes, from an engine that is fast or a loop that was late.
void HttpConnection::check_overflow() {
  output_lease_.resize(output_.held_bytes());
  ByteBudget& budget = context_.budgets->output;
  if (output_.size() > context_.config.stream_buffer_bytes_max) {
    overflowed_ = true;
  } else if (output_lease_.charged() > ByteBudget::kSmallBytes && budget.excess() > 0 &&
             output_lease_.charged() >= budget.fair_share()) {
    budget.count_refusal();
    overflowed_ = true;
  }
}

void HttpConnection::finish() {
  STATOR_ASSERT(state_ == State::kAnswering && framing_ != Framing::kNone,
                "E1: finish comes after start_stream");
  if (framing_ == Framing::kChunked) {
    output_.append_last_chunk();
  }
  linger_ = linger_ || framing_ == Framing::kTunnel;
  end_exchange();
}

void HttpConnection::abort() {
  STATOR_ASSERT(state_ == State::kAnswering && framing_ != Framing::kNone,
                "E1: abort comes after start_stream");
  close_after_ = true;
  end_exchange();
}

// ---- sending

void HttpConnection::mark_dirty() {
  if (!dirty_) {
    dirty_ = true;
    context_.dirty.push_back(this);
  }
}

void HttpConnection::flush_turn() {
  dirty_ = false;
  if (state_ == State::kAnswering && flushed_at_ && output_.size() < kFlushWithoutDelayBytes &&
      context_.shard.now() - *flushed_at_ < context_.config.stream_flush_interval) {
    if (!delayed_) {
      delayed_ = true;
      context_.delayed.push_back(this);
    }
    return;
  }
  flush();
}

void HttpConnection::flush() {
  delayed_ = false;
  if (is_closed()) {
    return;
  }
  if (!socket_.waits_writable()) {
    send_all();
  }
  if (is_closed()) {
    return;
  }
  output_lease_.resize(output_.held_bytes());
  check_pressure(context_.shard.now());
  if (!is_closed() && state_ == State::kSending && output_.empty()) {
    on_answer_sent();
  }
}

void HttpConnection::send_all() {
  output_.seal();
  for (size_t sent = 0; !output_.empty();) {
    if (sent >= kSentPerTurn) {
      return wait_writable();
    }
    const IoResult put = transport_->write(output_.front());
    switch (put.state) {
      case IoState::kDone:
        output_.consume(put.bytes);
        sent += put.bytes;
        sent_bytes_ += put.bytes;
        context_.metrics.bytes_written.add(put.bytes);
        blocked_at_ = context_.shard.now();
        flushed_at_ = blocked_at_;
        break;
      case IoState::kWantWrite:
        return wait_writable();
      case IoState::kWantRead:  // not after a TLS handshake, and there is no output before
      case IoState::kClosed:
      case IoState::kFailed:
        return close_now(ClientGone::kDisconnected);
    }
  }
}

void HttpConnection::wait_writable() {
  if (!socket_.waits_writable()) {
    blocked_at_ = context_.shard.now();
    socket_.wait_writable(shared_from_this());
  }
}

void HttpConnection::on_writable() {
  flush();
  if (!is_closed() && !socket_.waits_readable()) {
    resume_reading();  // a TLS handshake goes on
  }
}

void HttpConnection::check_pressure(TimePoint now) {
  if (state_ != State::kAnswering && !overflowed_) {
    return;
  }
  if (overflowed_ || output_.size() > context_.config.stream_buffer_bytes_max) {
    return drop_slow_client();
  }
  if (!above_high_water()) {
    pressed_since_.reset();
  } else if (!pressed_since_) {
    pressed_since_ = now;
  }
}

void HttpConnection::on_answer_sent() {
  if (close_after_ || (context_.draining && stash_.empty())) {
    return linger_ ? start_lingering() : close();
  }
  state_ = State::kIdle;
  deadline_ = context_.shard.now() + context_.config.idle_timeout;
  if (!stash_.empty()) {
    resume_reading();
  }
}

// ---- ending

void HttpConnection::start_lingering() {
  state_ = State::kLingering;
  lingered_bytes_ = 0;
  deadline_ = context_.shard.now() + kLingerTime;
  transport_->shutdown_write();
}

void HttpConnection::check_deadlines(TimePoint now) {
  switch (state_) {
    case State::kIdle:
    case State::kLingering:
      if (now >= deadline_) {
        close();
      }
      return;
    case State::kReceiving:
      return check_body(now);
    case State::kAnswering:
    case State::kSending: {
      const Duration limit = context_.config.slow_client_timeout;
      const bool stuck = socket_.waits_writable() && !output_.empty() && now - blocked_at_ >= limit;
      const bool pressed = pressed_since_ && now - *pressed_since_ >= limit;
      const bool slow =
          state_ == State::kSending && output_.size() > kRateFromBytes &&
          rate_.too_slow(now, sent_bytes_, context_.config.transfer_bytes_per_second_min);
      if (stuck || pressed || slow) {
        drop_slow_client();
      }
      return;
    }
    case State::kClosed:
      return;
  }
}

void HttpConnection::check_body(TimePoint now) {
  if (now >= deadline_) {
    return refuse({408, parser_->headers_complete()
                            ? "the request body took too long to arrive"
                            : "the request headers took too long to arrive"});
  }
  const size_t bytes = parser_->body_bytes_received();
  if (bytes > kRateFromBytes &&
      rate_.too_slow(now, bytes, context_.config.transfer_bytes_per_second_min)) {
    refuse({408, "the request body arrives too slowly (http.transfer_bytes_per_second_min)"});
  }
}

void HttpConnection::drop_slow_client() {
  context_.metrics.slow_clients.add();
  close_now(ClientGone::kSlowReader);
}

void HttpConnection::close_if_idle() {
  if (state_ == State::kIdle && stash_.empty()) {
    on_readable();  // a request that arrived after the loop's last look is answered, too
  }
  if (state_ != State::kIdle || !stash_.empty()) {
    return;
  }
  if (requests_ > 0) {
    return close();
  }
  deadline_ = std::min(deadline_, context_.shard.now() + kFirstRequestTime);
}

void HttpConnection::close_now(ClientGone reason) {
  const bool was_answering = state_ == State::kAnswering;
  ExchangeObserver* const observer = std::exchange(observer_, nullptr);
  close();
  if (!was_answering) {
    return;
  }
  context_.open_exchanges.fetch_sub(1, std::memory_order_relaxed);
  if (reason == ClientGone::kDisconnected) {
    context_.metrics.clients_gone.add();
  }
  if (observer != nullptr) {
    observer->on_client_gone(reason);
  }
}

void HttpConnection::close() {
  STATOR_ASSERT(!is_closed(), "C3: closed once");
  state_ = State::kClosed;
  transport_->shutdown_write();
  transport_.reset();
  socket_.close();
  parser_.reset();
  request_ = HttpRequest();
  clear_stash();
  body_lease_.release();
  output_.clear();
  output_lease_.release();
  context_.closed.push_back(this);
}

}  // namespace stator::net::detail

namespace stator::net {

bool client_is_local(HttpExchange& exchange) {
  auto* known = dynamic_cast<detail::KnowsClient*>(&exchange);
  return known != nullptr && known->from_this_host();
}

}  // namespace stator::net
