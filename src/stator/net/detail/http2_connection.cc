// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/http2_connection.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "stator/core/assert.h"

namespace stator::net::detail {
namespace {

using std::chrono::seconds;

// Reads of one connection in one turn; then the others have theirs.
constexpr int kReadsPerTurn = 16;
// Written for one connection in one turn; the same.
constexpr size_t kSentPerTurn = size_t{1024} * 1024;
// A delayed connection with this much to send does not wait for the tick.
constexpr size_t kFlushWithoutDelayBytes = size_t{64} * 1024;
// Between the first GOAWAY and the last: more than a round trip.
constexpr Duration kGoodbyeTime = seconds(1);

}  // namespace

Http2Connection::Http2Connection(ServerContext& context, FileDescriptor fd,
                                 std::unique_ptr<Transport> transport)
    : context_(context),
      socket_(context.shard.loop()),
      transport_(std::move(transport)),
      requests_(context.limits, context.config.http2_streams_max),
      output_lease_(context.budgets->output),
      idle_since_(context.shard.now()),
      blocked_at_(idle_since_) {
  socket_.open(std::move(fd)).ignore("start() sees to it");
}

Http2Connection::~Http2Connection() = default;

void Http2Connection::start(std::string_view bytes) {
  if (!socket_.is_watched()) {
    return close();
  }
  take_bytes(bytes);
  if (!closed_) {
    on_readable();
  }
}

// ---- reading

void Http2Connection::wait_readable() {
  if (!socket_.waits_readable() && !closed_ && !ending_) {
    socket_.wait_readable(shared_from_this());
  }
}

void Http2Connection::on_readable() {
  std::vector<char>& buffer = context_.read_buffer;
  for (int reads = 0; reads < kReadsPerTurn && !ending_; ++reads) {
    const IoResult got = transport_->read(buffer);
    switch (got.state) {
      case IoState::kDone:
        break;
      case IoState::kWantRead:
        return wait_readable();
      case IoState::kWantWrite:
        return wait_writable();
      case IoState::kClosed:
      case IoState::kFailed:
        return close_now(ClientGone::kDisconnected);
    }
    take_bytes({buffer.data(), got.bytes});
    if (closed_) {
      return;
    }
    if (transport_->drained(buffer.size(), got.bytes)) {
      return wait_readable();
    }
  }
  context_.shard.defer([self = shared_from_this()] {
    if (!self->closed_ && !self->socket_.waits_readable()) {
      self->on_readable();
    }
  });
}

void Http2Connection::take_bytes(std::string_view bytes) {
  const Http2Requests::Outcome outcome = requests_.receive(bytes, context_.shard.now());
  if (outcome == Http2Requests::Outcome::kFlood) {
    context_.metrics.rejected_flood.add();
    return end_connection(NGHTTP2_ENHANCE_YOUR_CALM);
  }
  if (outcome == Http2Requests::Outcome::kBroken) {
    context_.metrics.rejected_malformed.add();
    return end_connection(NGHTTP2_PROTOCOL_ERROR);
  }
  attend();
  if (!closed_ && (requests_.has_output() || requests_.given_up())) {
    mark_urgent();  // answers to PING and SETTINGS, and windows
  }
}

/// Nothing more is read: what there is to say is sent, and then the connection closes.
void Http2Connection::end_connection(uint32_t error_code) {
  ending_ = true;
  requests_.give_up(error_code);
  mark_urgent();
}

/// H3: looks after the streams of which there is news.
void Http2Connection::attend() {
  if (std::exchange(attending_, true)) {
    return;  // the loop below goes on
  }
  for (std::vector<int32_t> touched = requests_.take_touched(); !touched.empty();
       touched = requests_.take_touched()) {
    for (const int32_t id : touched) {
      if (closed_) {
        break;
      }
      attend_stream(id);
    }
    if (closed_) {
      break;
    }
  }
  attending_ = false;
}

void Http2Connection::attend_stream(int32_t id) {
  Http2Stream* const stream = requests_.find(id);
  if (stream == nullptr) {
    return;
  }
  auto found = exchanges_.find(id);
  if (found == exchanges_.end()) {
    found = exchanges_.emplace(id, std::make_unique<Http2Exchange>(*this, *stream, context_)).first;
    ++begun_;
  }
  Http2Exchange& exchange = *found->second;
  if (!stream->closed) {
    return exchange.attend();
  }
  const std::unique_ptr<Http2Exchange> owned = std::move(found->second);
  exchanges_.erase(found);
  owned->gone(ClientGone::kDisconnected);
  if (!closed_) {
    requests_.forget(id);
    idle_since_ = context_.shard.now();
    if (leaving_at_ && requests_.open_streams() == 0) {
      go_away(idle_since_);
      mark_urgent();
    }
  }
}

std::string Http2Connection::address() {
  return client_host(socket_.fd());
}

// ---- sending

void Http2Connection::mark_dirty() {
  if (!dirty_ && !closed_) {
    dirty_ = true;
    context_.dirty.push_back(this);
  }
}

void Http2Connection::mark_urgent() {
  urgent_ = true;
  mark_dirty();
}

void Http2Connection::flush_turn() {
  dirty_ = false;
  if (closed_) {
    return;
  }
  if (!urgent_ && flushed_at_ && waiting_bytes_ < kFlushWithoutDelayBytes &&
      context_.shard.now() - *flushed_at_ < context_.config.stream_flush_interval) {
    if (!delayed_) {
      delayed_ = true;
      context_.delayed.push_back(this);
    }
    return;
  }
  flush();
}

void Http2Connection::flush() {
  delayed_ = false;
  if (closed_) {
    return;
  }
  urgent_ = false;
  if (!socket_.waits_writable()) {
    send_all();
  }
  if (closed_) {
    return;
  }
  attend();  // streams end as their last bytes leave
  if (closed_) {
    return;
  }
  note_output();
  if (output_.empty() &&
      (ending_ || requests_.given_up() || (said_goodbye_ && requests_.open_streams() == 0))) {
    close_now(ClientGone::kDisconnected);
  }
}

/// After a flush: what has left of the answers.
void Http2Connection::note_output() {
  waiting_bytes_ = 0;
  for (const auto& [id, exchange] : exchanges_) {
    exchange->note_output();
    waiting_bytes_ += exchange->stream_.outgoing.held_bytes();
  }
  output_lease_.resize(waiting_bytes_ + output_.held_bytes());
}

/// A stream has more output, or less.
void Http2Connection::note_held(size_t before, size_t after) {
  waiting_bytes_ += after;
  waiting_bytes_ -= std::min(waiting_bytes_, before);
  output_lease_.resize(waiting_bytes_ + output_.held_bytes());
}

void Http2Connection::send_all() {
  for (size_t sent = 0;;) {
    if (output_.empty()) {
      requests_.append_output(output_);  // H2
      if (output_.empty()) {
        return;
      }
    }
    if (sent >= kSentPerTurn) {
      return wait_writable();
    }
    const IoResult put = transport_->write(output_.front());
    switch (put.state) {
      case IoState::kDone:
        output_.consume(put.bytes);
        sent += put.bytes;
        context_.metrics.bytes_written.add(put.bytes);
        blocked_at_ = context_.shard.now();
        flushed_at_ = blocked_at_;
        break;
      case IoState::kWantWrite:
        return wait_writable();
      case IoState::kWantRead:
      case IoState::kClosed:
      case IoState::kFailed:
        return close_now(ClientGone::kDisconnected);
    }
  }
}

void Http2Connection::wait_writable() {
  if (!socket_.waits_writable() && !closed_) {
    socket_.wait_writable(shared_from_this());
  }
}

void Http2Connection::on_writable() {
  flush();
  if (!closed_ && !socket_.waits_readable() && !ending_) {
    on_readable();  // a TLS handshake goes on
  }
}

// ---- limits

void Http2Connection::check_deadlines(TimePoint now) {
  if (closed_) {
    return;
  }
  if (context_.send_away) {
    go_away(now);
  }
  if (socket_.waits_writable() && !output_.empty() &&
      now - blocked_at_ >= context_.config.slow_client_timeout) {
    return drop_slow_client();
  }
  std::vector<int32_t> ids;
  for (const auto& [id, exchange] : exchanges_) {
    ids.push_back(id);
  }
  for (const int32_t id : ids) {
    const auto found = exchanges_.find(id);
    if (found != exchanges_.end()) {
      found->second->check(now);
    }
    if (closed_) {
      return;
    }
  }
  if (exchanges_.empty() && now - idle_since_ >= context_.config.idle_timeout) {
    end_connection(NGHTTP2_NO_ERROR);
  }
}

/// In two steps, so that requests on their way meanwhile are answered (RFC 9113, 6.8). A client
/// that only waits for its answers has nothing to be told, and some, httpx among them, give up
/// running streams when they are: the first step waits until they have ended, or one more begins.
void Http2Connection::go_away(TimePoint now) {
  if (!leaving_at_) {
    leaving_at_ = begun_;
  }
  if (!leaving_since_ && (requests_.open_streams() == 0 || begun_ != *leaving_at_)) {
    leaving_since_ = now;
    requests_.go_away(Http2Requests::Goodbye::kNotice);
    mark_urgent();
  } else if (leaving_since_ && !said_goodbye_ && now - *leaving_since_ >= kGoodbyeTime) {
    said_goodbye_ = true;
    requests_.go_away(Http2Requests::Goodbye::kFinal);
    mark_urgent();
  }
}

void Http2Connection::close_if_idle() {
  go_away(context_.shard.now());
}

void Http2Connection::drop_slow_client() {
  context_.metrics.slow_clients.add();
  close_now(ClientGone::kSlowReader);
}

Http2Exchange* Http2Connection::largest_body() const {
  Http2Exchange* largest = nullptr;
  for (const auto& [id, exchange] : exchanges_) {
    if (exchange->state_ == Http2Exchange::State::kReceiving &&
        (largest == nullptr || exchange->body_lease_.charged() > largest->body_lease_.charged())) {
      largest = exchange.get();
    }
  }
  return largest;
}

Holding Http2Connection::held_body() const {
  const Http2Exchange* const largest = largest_body();
  return largest == nullptr ? Holding{} : Holding{largest->body_lease_.charged(), largest->began_};
}

void Http2Connection::refuse_for_room() {
  if (Http2Exchange* const largest = largest_body()) {
    largest->refuse_for_room();
  }
}

// ---- the end

void Http2Connection::close_now(ClientGone reason) {
  if (closed_) {
    return;
  }
  const auto self = shared_from_this();
  close();
  gone_ = std::exchange(exchanges_, {});  // one of them may be calling
  for (const auto& [id, exchange] : gone_) {
    exchange->gone(reason);
  }
}

void Http2Connection::close() {
  STATOR_ASSERT(!closed_, "H4: closed once");
  closed_ = true;
  transport_->shutdown_write();
  socket_.close();
  output_.clear();
  output_lease_.release();
  context_.closed.push_back(this);
}

}  // namespace stator::net::detail
