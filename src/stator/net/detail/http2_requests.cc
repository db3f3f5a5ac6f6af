// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/http2_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "stator/net/http_server.h"

namespace stator::net::detail {
namespace {

// A name and a value cost so much beside their bytes (RFC 9113, 10.5.1).
constexpr size_t kFieldOverheadBytes = 32;
// P2.
constexpr size_t kHeadBytesFactor = 4;
// A declared length is only believed up to here before the bytes arrive.
constexpr size_t kBodyReservedMax = size_t{1024} * 1024;

// What every client may send anyway (RFC 9113, 4.2): header blocks are in frames of this size, too.
constexpr uint32_t kFrameBytesMax = 16384;
// P4. Gaps in the numbers of streams that are remembered.
constexpr size_t kGapsMax = 64;

std::string_view text(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

/// Nothing for what is no number; nghttp2 has checked that it is.
size_t parse_length(std::optional<std::string_view> value) {
  size_t length = 0;
  if (value) {
    std::from_chars(value->data(), value->data() + value->size(), length);
  }
  return length;
}

void refuse(Http2Stream& stream, int status, std::string message) {
  if (!stream.refusal) {
    stream.refusal = Refusal{status, std::move(message)};
  }
}

void refuse_body(Http2Stream& stream) {
  refuse(stream, stream.rule.status,
         stream.rule.message.empty()
             ? fmt::format("request body is larger than {} bytes", stream.rule.bytes_max)
             : stream.rule.message);
}

bool is_idle_frame(const nghttp2_frame_hd& head) {
  switch (head.type) {
    case NGHTTP2_DATA:
      return head.length == 0 && (head.flags & NGHTTP2_FLAG_END_STREAM) == 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_WINDOW_UPDATE:  // as many as the DATA that we send
    case NGHTTP2_RST_STREAM:     // counted apart
      return false;
    default:
      return true;
  }
}

}  // namespace

bool RateBound::take(TimePoint now, double count) {
  if (at_ && now > *at_) {
    const double seconds = std::chrono::duration<double>(now - *at_).count();
    left_ = std::min(burst_, left_ + seconds * per_second_);
  }
  at_ = now;
  left_ -= count;
  return left_ >= 0;
}

/// nghttp2's calls, which all come from inside mem_recv and mem_send.
struct Http2Requests::Callbacks {
  static Http2Requests& self(void* user) { return *static_cast<Http2Requests*>(user); }

  static int on_begin_frame(nghttp2_session* /*session*/, const nghttp2_frame_hd* head,
                            void* user) {
    self(user).idle_frames_ += is_idle_frame(*head) ? 1 : 0;
    if (head->type == NGHTTP2_HEADERS) {
      self(user).check_number(head->stream_id);
    }
    return 0;
  }
  static int on_begin(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    const int32_t id = frame->hd.stream_id;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      auto& streams = self(user).streams_;
      if (streams.emplace(id, std::make_unique<Http2Stream>(id)).second) {
        ++self(user).open_;
      }
    }
    return 0;
  }
  static int on_header(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                       const uint8_t* name, size_t name_size, const uint8_t* value,
                       size_t value_size, uint8_t /*flags*/, void* user) {
    Http2Stream* const stream = self(user).find(frame->hd.stream_id);
    return stream == nullptr
               ? 0
               : self(user).take_field(*stream, text(name, name_size), text(value, value_size));
  }
  static int on_data(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t id,
                     const uint8_t* data, size_t size, void* user) {
    if (Http2Stream* const stream = self(user).find(id)) {
      self(user).on_data(*stream, text(data, size));
    }
    return 0;
  }
  static int on_frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    Http2Requests& requests = self(user);
    requests.resets_ += frame->hd.type == NGHTTP2_RST_STREAM ? 1 : 0;
    Http2Stream* const stream = requests.find(frame->hd.stream_id);
    const bool carries_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (stream == nullptr || !carries_end) {
      return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      requests.on_head(*stream);
    }
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      stream->ended = true;
      requests.touch(*stream);
    }
    return 0;
  }
  static int on_sent(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    const bool carries_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (carries_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      self(user).on_sent_end(frame->hd.stream_id);
    } else if (frame->hd.type == NGHTTP2_RST_STREAM &&
               frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
               frame->rst_stream.error_code != NGHTTP2_REFUSED_STREAM) {  // nothing was begun
      ++self(user).resets_;
    }
    return 0;
  }
  static int on_close(nghttp2_session* /*session*/, int32_t id, uint32_t /*error*/, void* user) {
    self(user).on_closed(id);
    return 0;
  }
  static ssize_t on_read(nghttp2_session* /*session*/, int32_t id, uint8_t* to, size_t size,
                         uint32_t* flags, nghttp2_data_source* /*source*/, void* user) {
    Http2Stream* const stream = self(user).find(id);
    return stream == nullptr ? ssize_t{NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE}
                             : self(user).read_answer(*stream, to, size, flags);
  }
};

Http2Requests::Http2Requests(const ParserLimits& limits, uint32_t streams_max) : limits_(limits) {
  const Http2Callbacks callbacks = make_http2_callbacks();
  nghttp2_session_callbacks* const set = callbacks.get();
  nghttp2_session_callbacks_set_on_begin_frame_callback(set, Callbacks::on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(set, Callbacks::on_begin);
  nghttp2_session_callbacks_set_on_header_callback(set, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(set, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(set, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_frame_send_callback(set, Callbacks::on_sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(set, Callbacks::on_close);
  session_ = make_http2_server(*set, this,
                               {.streams_max = streams_max,
                                .frame_bytes_max = kFrameBytesMax,
                                .header_list_bytes = static_cast<uint32_t>(limits.header_bytes_max),
                                .takes_other_protocols = true});
}

Http2Requests::Outcome Http2Requests::receive(std::string_view bytes, TimePoint now) {
  const ssize_t taken = nghttp2_session_mem_recv(
      session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (!reset_bound_.take(now, static_cast<double>(std::exchange(resets_, 0))) ||
      !idle_bound_.take(now, static_cast<double>(std::exchange(idle_frames_, 0))) ||
      taken == NGHTTP2_ERR_FLOODED) {
    return Outcome::kFlood;
  }
  return taken < 0 ? Outcome::kBroken : Outcome::kGoOn;
}

Http2Stream* Http2Requests::find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

/// P4: nghttp2 takes what comes on a stream with a lower number than the last for one that is
/// closed.
void Http2Requests::check_number(int32_t id) {
  if (id > last_number_) {
    if (id > last_number_ + 2 && gaps_.size() < kGapsMax) {
      gaps_.emplace_back(last_number_, id);
    }
    last_number_ = id;
    return;
  }
  const bool skipped = std::ranges::any_of(
      gaps_, [id](const auto& gap) { return id > gap.first && id < gap.second; });
  if (skipped) {
    nghttp2_session_terminate_session(session_.get(), NGHTTP2_PROTOCOL_ERROR);
  }
}

std::vector<int32_t> Http2Requests::take_touched() {
  for (const int32_t id : touched_) {
    if (Http2Stream* const stream = find(id)) {
      stream->touched_ = false;
    }
  }
  return std::exchange(touched_, {});
}

void Http2Requests::touch(Http2Stream& stream) {
  if (!std::exchange(stream.touched_, true)) {
    touched_.push_back(stream.id);
  }
}

// ---- requests

int Http2Requests::take_field(Http2Stream& stream, std::string_view name, std::string_view value) {
  if (stream.head) {
    return 0;  // behind the body: of no use to anybody here
  }
  stream.header_bytes_ += name.size() + value.size() + kFieldOverheadBytes;
  if (stream.header_bytes_ > limits_.header_bytes_max * kHeadBytesFactor) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;  // P2: what is small on the wire may be large here
  }
  if (stream.refusal) {
    return 0;
  }
  if (stream.header_bytes_ > limits_.header_bytes_max) {
    refuse(stream, 431,
           fmt::format("request headers are larger than {} bytes", limits_.header_bytes_max));
  } else if (name.starts_with(':')) {
    take_pseudo(stream, name, value);
  } else {
    start_request(stream);
    if (stream.request.header_count() >= limits_.headers_max) {
      refuse(stream, 431, fmt::format("more than {} request headers", limits_.headers_max));
    } else if (name != "host") {
      stream.expects_continue =
          stream.expects_continue || (name == "expect" && value == "100-continue");
      stream.request.add_header(name, value);
    } else if (stream.authority_.empty()) {
      stream.authority_ = value;
      stream.request.add_header(name, value);
    } else if (stream.authority_ != value) {
      refuse(stream, 400, "the Host header and :authority differ");
    }
  }
  return 0;
}

void Http2Requests::take_pseudo(Http2Stream& stream, std::string_view name,
                                std::string_view value) {
  if (name == ":method") {
    stream.method_ = value;
  } else if (name == ":path") {
    stream.target_ = value;
  } else if (name == ":authority") {
    stream.authority_ = value;
  } else if (name == ":protocol") {
    stream.protocol = value;
  }
}

/// Pseudo-header fields come first: nghttp2 sees to it.
void Http2Requests::start_request(Http2Stream& stream) {
  if (std::exchange(stream.started_, true)) {
    return;
  }
  stream.request.set_start(stream.method_, stream.target_);
  if (!stream.authority_.empty()) {
    stream.request.add_header("host", stream.authority_);
  }
}

void Http2Requests::on_head(Http2Stream& stream) {
  start_request(stream);
  stream.head = true;
  touch(stream);
  if (stream.method_ == "CONNECT" && stream.protocol.empty()) {
    refuse(stream, 501, "this is no proxy: CONNECT is for WebSockets (RFC 8441)");
  } else if (stream.authority_.empty()) {
    refuse(stream, 400, "the Host header is missing");
  }
  if (stream.refusal) {
    return;
  }
  stream.tunnel = !stream.protocol.empty();
  if (limits_.handler != nullptr) {
    stream.rule = limits_.handler->body_rule(stream.request);
  }
  stream.rule.bytes_max = std::min(stream.rule.bytes_max, limits_.body_bytes_max);
  const size_t declared = parse_length(stream.request.header("content-length"));
  if (declared > stream.rule.bytes_max && !stream.rule.in_pieces) {
    refuse_body(stream);
  } else if (!stream.rule.in_pieces) {
    stream.request.mutable_body().reserve(std::min(declared, kBodyReservedMax));
  }
}

void Http2Requests::on_data(Http2Stream& stream, std::string_view bytes) {
  if (stream.refusal || stream.finished) {
    return;
  }
  touch(stream);
  if (stream.rule.in_pieces || stream.tunnel) {
    stream.arrived += bytes;
    return;
  }
  stream.body_bytes_ += bytes.size();
  if (stream.body_bytes_ > stream.rule.bytes_max) {
    stream.request.take_body();
    return refuse_body(stream);
  }
  stream.request.mutable_body() += bytes;
}

// ---- answers

void Http2Requests::send_continue(Http2Stream& stream) {
  if (!stream.closed && !stream.answering) {
    const nghttp2_nv field = http2_field(":status", "100");
    nghttp2_submit_headers(session_.get(), NGHTTP2_FLAG_NONE, stream.id, nullptr, &field, 1,
                           nullptr);
  }
}

void Http2Requests::answer(Http2Stream& stream, std::span<const nghttp2_nv> fields,
                           Follows follows) {
  if (stream.closed || std::exchange(stream.answering, true)) {
    return;
  }
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::on_read;
  nghttp2_submit_response(session_.get(), stream.id, fields.data(), fields.size(),
                          follows == Follows::kBody ? &provider : nullptr);
}

void Http2Requests::resume(Http2Stream& stream) {
  if (!stream.closed && std::exchange(stream.starved, false)) {
    nghttp2_session_resume_data(session_.get(), stream.id);
  }
}

void Http2Requests::set_trailers(Http2Stream& stream, std::span<const HttpHeader> trailers) {
  for (const HttpHeader& trailer : trailers) {
    stream.trailers_.emplace_back(trailer.name, trailer.value);
  }
}

void Http2Requests::reset(Http2Stream& stream, uint32_t error_code) {
  if (!stream.closed) {
    nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, stream.id, error_code);
  }
}

ssize_t Http2Requests::read_answer(Http2Stream& stream, uint8_t* to, size_t size, uint32_t* flags) {
  const ssize_t taken = hand_out(stream.outgoing, to, size);
  if (!stream.outgoing.empty() || !stream.finished) {
    stream.starved = taken < 0;
    return taken;
  }
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  if (!stream.trailers_.empty()) {
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    std::vector<nghttp2_nv> fields;
    for (const auto& [name, value] : stream.trailers_) {
      fields.push_back(http2_field(name, value));
    }
    nghttp2_submit_trailer(session_.get(), stream.id, fields.data(), fields.size());
  }
  return std::max<ssize_t>(taken, 0);
}

/// The client need not say the rest (RFC 9113, 8.1).
void Http2Requests::on_sent_end(int32_t id) {
  const Http2Stream* const stream = find(id);
  if (stream != nullptr && !stream->ended) {
    nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
  }
}

void Http2Requests::on_closed(int32_t id) {
  Http2Stream* const stream = find(id);
  if (stream == nullptr || std::exchange(stream->closed, true)) {
    return;
  }
  --open_;
  if (!stream->head) {
    streams_.erase(id);  // nobody has heard of it
    return;
  }
  touch(*stream);
}

// ---- the end

void Http2Requests::go_away(Goodbye goodbye) {
  if (goodbye == Goodbye::kNotice) {
    nghttp2_submit_shutdown_notice(session_.get());
    return;
  }
  nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_.get()), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}

void Http2Requests::give_up(uint32_t error_code) {
  nghttp2_session_terminate_session(session_.get(), error_code);
}

}  // namespace stator::net::detail
