// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/net/detail/http2_connection.h"
#include "stator/net/detail/response_head.h"

namespace stator::net::detail {
namespace {

using std::chrono::seconds;

// As over HTTP/1.1: a slower body than this, after body_timeout, is not an upload.
constexpr size_t kBodyBytesPerSecond = size_t{16} * 1024;
// What holds less may come and go at any rate (transfer_bytes_per_second_min).
constexpr size_t kRateFromBytes = size_t{1024} * 1024;
constexpr std::string_view kRetryAfterSeconds = "1";
constexpr std::string_view kWhy503 =
    "too many bytes of request bodies are here at the moment (http.bodies_bytes_max), retry "
    "shortly";

/// Of the connection, which HTTP/2 has other words for (RFC 9113, 8.2.2).
bool is_hop_by_hop(std::string_view name) {
  return name == "connection" || name == "keep-alive" || name == "transfer-encoding" ||
         name == "upgrade";
}

/// Fields of one answer; what they view lives as long as this.
class Fields {
 public:
  explicit Fields(int status) : status_(fmt::to_string(status)) { add(":status", status_); }
  void add(std::string_view name, std::string_view value) {
    fields_.push_back(http2_field(name, value));
  }
  /// A value from elsewhere: control characters become spaces.
  void add_foreign(std::string_view name, std::string_view value) {
    const auto control = [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return (byte < 0x20 && c != '\t') || byte == 0x7F;
    };
    if (std::ranges::none_of(value, control)) {
      return add(name, value);
    }
    std::string cleaned(value);
    std::ranges::replace_if(cleaned, control, ' ');
    owned_.push_back(std::make_unique<std::string>(std::move(cleaned)));
    add(name, *owned_.back());
  }
  /// "name: value\r\n" …
  void add_lines(std::string_view lines) {
    while (!lines.empty()) {
      const size_t end = std::min(lines.find("\r\n"), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 2, lines.size()));
      if (const size_t colon = line.find(": "); colon != std::string_view::npos) {
        add(line.substr(0, colon), line.substr(colon + 2));
      }
    }
  }
  std::span<const nghttp2_nv> all() const { return fields_; }

 private:
  const std::string status_;
  std::vector<nghttp2_nv> fields_;
  std::vector<std::unique_ptr<std::string>> owned_;
};

}  // namespace

Http2Exchange::Http2Exchange(Http2Connection& connection, Http2Stream& stream,
                             ServerContext& context)
    : connection_(connection),
      stream_(stream),
      context_(context),
      body_lease_(context.budgets->bodies),
      began_(context.shard.now()),
      moved_(began_) {
  rate_.start(began_);
}

// ---- the request

void Http2Exchange::attend() {
  if (state_ == State::kReceiving) {
    return receive_body();
  }
  if (state_ == State::kAnswering) {
    deliver();
  }
}

void Http2Exchange::receive_body() {
  if (stream_.refusal) {
    return refuse(*stream_.refusal);
  }
  if (stream_.ended || stream_.rule.in_pieces || stream_.tunnel) {
    return start();
  }
  if (stream_.expects_continue && stream_.request.body().empty()) {
    stream_.expects_continue = false;
    connection_.requests_.send_continue(stream_);
    connection_.mark_urgent();
  }
  const size_t bytes = stream_.request.body().size();
  if (body_lease_.try_resize(bytes)) {
    return;
  }
  context_.make_room(connection_);
  if (state_ == State::kReceiving && !body_lease_.try_resize(bytes)) {
    refuse_for_room();
  }
}

void Http2Exchange::start() {
  const size_t bytes = stream_.request.body().size();
  if (!body_lease_.try_resize(bytes)) {
    context_.make_room(connection_);
    if (state_ != State::kReceiving) {
      return;
    }
    if (!body_lease_.try_resize(bytes)) {
      return refuse_for_room();
    }
  }
  state_ = State::kAnswering;
  context_.open_exchanges.fetch_add(1, std::memory_order_relaxed);
  if (context_.cors.is_preflight(stream_.request)) {
    respond(204, {}, {}, make_preflight_headers(stream_.request));
    return;
  }
  context_.metrics.requests.add();
  context_.handler.on_request(*this);
  if (!connection_.is_closed() && state_ == State::kAnswering) {
    deliver();
  }
}

/// Of a body in pieces or a tunnel.
void Http2Exchange::deliver() {
  if (observer_ == nullptr || !(stream_.rule.in_pieces || stream_.tunnel)) {
    return;
  }
  if (!stream_.arrived.empty()) {
    const std::string arrived = std::exchange(stream_.arrived, {});
    observer_->on_body(arrived);
  }
  if (stream_.ended && state_ == State::kAnswering && observer_ != nullptr &&
      !std::exchange(end_told_, true)) {
    observer_->on_body_end();
  }
}

ByteLease Http2Exchange::take_body_lease() {
  return std::exchange(body_lease_, ByteLease(context_.budgets->bodies));
}

void Http2Exchange::refuse_for_room() {
  context_.budgets->bodies.count_refusal();
  refuse({503, std::string(kWhy503)});
}

void Http2Exchange::refuse(const Refusal& refusal) {
  context_.metrics.count_refusal(refusal.status);
  const std::string body =
      context_.handler.refusal_body(stream_.request, refusal.status, refusal.message);
  const HttpHeader retry_after{"retry-after", kRetryAfterSeconds};
  stream_.request.take_body();
  stream_.refusal = refusal;
  state_ = State::kAnswering;
  context_.open_exchanges.fetch_add(1, std::memory_order_relaxed);
  respond(refusal.status, "application/json", body,
          std::span(&retry_after, refusal.status == 503 ? 1 : 0));
}

std::string Http2Exchange::client_address() {
  return connection_.address();
}

bool Http2Exchange::from_this_host() {
  return comes_from_this_host(stream_.request, client_address());
}

// ---- the answer

void Http2Exchange::set_observer(ExchangeObserver* observer) {
  STATOR_ASSERT(state_ == State::kAnswering, "E1: the exchange is over");
  observer_ = observer;
}

/// Whether the body is to follow.
bool Http2Exchange::begin(const Head& head, std::span<const HttpHeader> headers) {
  STATOR_ASSERT(state_ == State::kAnswering && !stream_.answering, "E1: one answer per exchange");
  if (stream_.request.notes() != nullptr) {
    stream_.request.notes()->on_status(head.status);
  }
  const bool bodiless = is_bodiless(head.status) || stream_.request.method() == "HEAD";
  Fields fields(head.status);
  fields.add_lines(context_.date_line());
  fields.add_lines(context_.cors.lines_for(stream_.request));
  if (!head.content_type.empty()) {
    fields.add_foreign("content-type", head.content_type);
  }
  std::string length;
  if (head.content_bytes && !is_bodiless(head.status)) {
    length = fmt::to_string(*head.content_bytes);
    fields.add("content-length", length);
  }
  for (const HttpHeader& header : headers) {
    if (!is_hop_by_hop(header.name)) {
      fields.add_foreign(header.name, header.value);
    }
  }
  const bool follows = !bodiless && head.content_bytes.value_or(1) > 0;
  connection_.requests_.answer(
      stream_, fields.all(),
      follows ? Http2Requests::Follows::kBody : Http2Requests::Follows::kNothing);
  connection_.mark_urgent();
  return follows;
}

void Http2Exchange::respond(int status, std::string_view content_type, std::string_view body,
                            std::span<const HttpHeader> headers) {
  if (begin({.status = status, .content_type = content_type, .content_bytes = body.size()},
            headers)) {
    const size_t before = stream_.outgoing.size();
    stream_.outgoing.append_raw(body);
    connection_.note_held(before, stream_.outgoing.size());
  }
  end();
}

void Http2Exchange::respond_with(int status, std::string_view content_type, std::string body,
                                 std::span<const HttpHeader> headers) {
  if (begin({.status = status, .content_type = content_type, .content_bytes = body.size()},
            headers)) {
    const size_t before = stream_.outgoing.size();
    stream_.outgoing.append_body(std::move(body));
    connection_.note_held(before, stream_.outgoing.size());
  }
  end();
}

void Http2Exchange::start_stream(int status, std::string_view content_type,
                                 std::span<const HttpHeader> headers) {
  body_follows_ =
      begin({.status = status, .content_type = content_type, .content_bytes = {}}, headers);
}

bool Http2Exchange::start_tunnel(std::span<const HttpHeader> headers) {
  if (!stream_.tunnel) {
    return false;
  }
  body_follows_ = begin({.status = 200, .content_type = {}, .content_bytes = {}}, headers);
  return true;
}

void Http2Exchange::write(std::string_view bytes) {
  STATOR_ASSERT(state_ == State::kAnswering && stream_.answering,
                "E1: write comes between start_stream and finish");
  if (bytes.empty() || !body_follows_ || stream_.closed || overflowed_) {
    return;
  }
  const size_t before = stream_.outgoing.size();
  stream_.outgoing.append_raw(bytes);
  connection_.note_held(before, stream_.outgoing.size());
  connection_.requests_.resume(stream_);
  connection_.mark_dirty();
  overflowed_ = has_too_much();
}

/// More than a stream may have, or than its share of a budget that is spent.
bool Http2Exchange::has_too_much() const {
  const size_t waiting = stream_.outgoing.size();
  const ByteBudget& budget = context_.budgets->output;
  return waiting > context_.config.stream_buffer_bytes_max ||
         (waiting > ByteBudget::kSmallBytes && budget.excess() > 0 &&
          waiting >= budget.fair_share());
}

void Http2Exchange::finish_with(std::span<const HttpHeader> trailers) {
  STATOR_ASSERT(state_ == State::kAnswering && stream_.answering,
                "E1: finish comes after start_stream");
  if (overflowed_) {
    return abort();  // what is left out is no complete answer
  }
  connection_.requests_.set_trailers(stream_, trailers);
  end();
}

void Http2Exchange::abort() {
  STATOR_ASSERT(state_ == State::kAnswering && stream_.answering,
                "E1: abort comes after start_stream");
  end();
  connection_.requests_.reset(stream_, NGHTTP2_INTERNAL_ERROR);
}

void Http2Exchange::end() {
  observer_ = nullptr;
  state_ = State::kSending;
  pressed_since_.reset();
  rate_.start(context_.shard.now());
  sent_bytes_ = 0;
  body_lease_.release();
  stream_.request = HttpRequest();
  stream_.arrived = std::string();
  stream_.finished = true;
  connection_.requests_.resume(stream_);
  context_.open_exchanges.fetch_sub(1, std::memory_order_relaxed);
  connection_.mark_urgent();
}

bool Http2Exchange::above_high_water() const {
  return stream_.outgoing.size() > context_.config.stream_high_water_bytes;
}

// ---- clients that do not read

/// After a flush: how much of the answer has left.
void Http2Exchange::note_output() {
  const size_t now_waiting = stream_.outgoing.size();
  if (now_waiting == waiting_) {
    return;
  }
  if (now_waiting < waiting_ || now_waiting == 0) {
    sent_bytes_ += waiting_ - std::min(now_waiting, waiting_);
    moved_ = context_.shard.now();
  }
  waiting_ = now_waiting;
}

void Http2Exchange::check(TimePoint now) {
  if (state_ == State::kReceiving) {
    return check_body(now);
  }
  const HttpServerConfig& config = context_.config;
  if (!above_high_water()) {
    pressed_since_.reset();
  } else if (!pressed_since_) {
    pressed_since_ = now;
  }
  const size_t waiting = stream_.outgoing.size();
  if (waiting == 0) {
    moved_ = now;
  }
  const bool stuck = waiting > 0 && now - moved_ >= config.slow_client_timeout;
  const bool pressed = pressed_since_ && now - *pressed_since_ >= config.slow_client_timeout;
  const bool over = state_ == State::kAnswering && (overflowed_ || has_too_much());
  const bool slow = state_ == State::kSending && waiting > kRateFromBytes &&
                    rate_.too_slow(now, sent_bytes_, config.transfer_bytes_per_second_min);
  if (stuck || pressed || over || slow) {
    context_.metrics.slow_clients.add();
    if (over && waiting <= config.stream_buffer_bytes_max) {
      context_.budgets->output.count_refusal();
    }
    const size_t before = stream_.outgoing.size();
    stream_.outgoing.clear();
    connection_.note_held(before, 0);
    connection_.requests_.reset(stream_, NGHTTP2_CANCEL);
    connection_.mark_urgent();
    gone(ClientGone::kSlowReader);
  }
}

void Http2Exchange::check_body(TimePoint now) {
  const size_t bytes = stream_.request.body().size();
  const Duration earned = context_.config.body_timeout + seconds(bytes / kBodyBytesPerSecond);
  if (now >= began_ + std::min(earned, context_.config.body_time_max)) {
    return refuse({408, "the request body took too long to arrive"});
  }
  if (bytes > kRateFromBytes &&
      rate_.too_slow(now, bytes, context_.config.transfer_bytes_per_second_min)) {
    refuse({408, "the request body arrives too slowly (http.transfer_bytes_per_second_min)"});
  }
}

/// Nobody reads any more.
void Http2Exchange::gone(ClientGone reason) {
  const size_t before = stream_.outgoing.size();
  stream_.outgoing.clear();
  if (!connection_.is_closed()) {
    connection_.note_held(before, 0);
  }
  const bool was_answering = state_ == State::kAnswering;
  state_ = State::kSending;
  stream_.finished = true;
  body_lease_.release();
  ExchangeObserver* const observer = std::exchange(observer_, nullptr);
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

}  // namespace stator::net::detail
