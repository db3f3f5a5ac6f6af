// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_server_streams.h"

#include <array>
#include <utility>

#include "stator/core/assert.h"

namespace stator::net::detail {
namespace {

constexpr uint32_t kHeaderListBytesMax = 16 * 1024;
constexpr size_t kPathBytesMax = 1024;

std::string_view text(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

/// nghttp2's calls, which all come from inside mem_recv and mem_send.
struct GrpcServerStreams::Callbacks {
  static GrpcServerStreams& self(void* user) { return *static_cast<GrpcServerStreams*>(user); }

  static int on_begin(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      self(user).streams_.try_emplace(frame->hd.stream_id, self(user).limits_.message_bytes_max);
    }
    return 0;
  }
  static int on_header(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                       const uint8_t* name, size_t name_size, const uint8_t* value,
                       size_t value_size, uint8_t /*flags*/, void* user) {
    Stream* const stream = self(user).find(frame->hd.stream_id);
    if (stream != nullptr && !stream->called) {
      self(user).take_header(*stream, text(name, name_size), text(value, value_size));
    }
    return 0;
  }
  static int on_data(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t id,
                     const uint8_t* data, size_t size, void* user) {
    self(user).take_data(id, text(data, size));
    return 0;
  }
  static int on_frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    Stream* const stream = self(user).find(frame->hd.stream_id);
    const bool carries_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (stream == nullptr || !carries_end) {
      return 0;
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      self(user).on_head(frame->hd.stream_id, *stream);
    }
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      stream->half_closed = true;
      self(user).on_half_closed(frame->hd.stream_id, *stream);
    }
    return 0;
  }
  static int on_sent(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      self(user).on_sent_status(frame->hd.stream_id);
    }
    return 0;
  }
  static int on_close(nghttp2_session* /*session*/, int32_t id, uint32_t /*error*/, void* user) {
    self(user).on_closed(id);
    return 0;
  }
  static ssize_t on_read(nghttp2_session* /*session*/, int32_t id, uint8_t* to, size_t size,
                         uint32_t* flags, nghttp2_data_source* /*source*/, void* user) {
    return self(user).read_answer(id, to, size, flags);
  }
};

GrpcServerStreams::GrpcServerStreams(const Limits& limits)
    : limits_(limits), share_(limits.budget, limits.unfinished_bytes_max) {
  const Http2Callbacks callbacks = make_http2_callbacks();
  nghttp2_session_callbacks* const set = callbacks.get();
  nghttp2_session_callbacks_set_on_begin_headers_callback(set, Callbacks::on_begin);
  nghttp2_session_callbacks_set_on_header_callback(set, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(set, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(set, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_frame_send_callback(set, Callbacks::on_sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(set, Callbacks::on_close);
  session_ = make_http2_server(*set, this,
                               {.streams_max = limits_.streams_max,
                                .header_list_bytes = kHeaderListBytesMax,
                                .consumes_by_itself = false});  // R2
}

GrpcServerStreams::~GrpcServerStreams() = default;

GrpcServerStreams::Stream* GrpcServerStreams::find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

bool GrpcServerStreams::receive(std::string_view bytes) {
  return nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()),
                                  bytes.size()) >= 0;
}

std::vector<GrpcArrival> GrpcServerStreams::take_arrivals() {
  return std::exchange(arrivals_, {});
}

void GrpcServerStreams::take_header(Stream& stream, std::string_view name, std::string_view value) {
  if (name == ":path") {
    stream.path = value.substr(0, kPathBytesMax);
  } else if (name == "content-type") {
    stream.grpc = value.starts_with(kGrpcContentType);
  } else if (name == "grpc-timeout") {
    stream.timeout = parse_grpc_timeout(value);
  }
}

void GrpcServerStreams::on_head(int32_t id, Stream& stream) {
  stream.called = stream.grpc;
  if (!stream.called) {
    refuse(id, "415");
    return;
  }
  arrivals_.push_back({GrpcArrival::Kind::kCall, id, std::move(stream.path), stream.timeout});
}

/// An answer for those who speak HTTP, but not gRPC.
void GrpcServerStreams::refuse(int32_t id, const char* http_status) {
  const std::array head{http2_field(":status", http_status)};
  nghttp2_submit_response(session_.get(), id, head.data(), head.size(), nullptr);
}

void GrpcServerStreams::take_data(int32_t id, std::string_view bytes) {
  // Nobody else's calls wait for a held one.
  nghttp2_session_consume_connection(session_.get(), bytes.size());
  Stream* const stream = find(id);
  if (stream == nullptr || !stream->called || stream->outcome) {
    return;  // it has its answer, and its window stays as it is
  }
  if (stream->holding) {
    stream->held.append(bytes);
  } else {
    nghttp2_session_consume_stream(session_.get(), id, bytes.size());
    feed(id, *stream, bytes);
  }
  count_bytes(id, *stream);
}

void GrpcServerStreams::feed(int32_t id, Stream& stream, std::string_view bytes) {
  if (!stream.called || stream.outcome) {
    return;  // it has its answer
  }
  while (const auto message = stream.incoming.next(bytes)) {
    stream.stale = false;
    arrivals_.push_back({GrpcArrival::Kind::kMessage, id, std::string(*message), std::nullopt});
  }
  if (stream.incoming.trouble()) {
    finish(id, *stream.incoming.trouble());
  }
}

/// R4.
void GrpcServerStreams::count_bytes(int32_t id, Stream& stream) {
  size_t bytes = stream.incoming.unfinished_bytes() + stream.held.size();
  if (bytes > 0 && !stream.outcome && !share_.resize(stream.counted_bytes, bytes)) {
    ++ended_calls_;
    finish(id, {kGrpcResourceExhausted, "too much of unfinished messages is held for clients"});
  }
  if (stream.outcome) {
    stream.incoming.drop();
    std::string().swap(stream.held);
    bytes = 0;
  }
  if (bytes == 0) {
    share_.resize(stream.counted_bytes, 0);
  }
  stream.counted_bytes = bytes;
}

bool GrpcServerStreams::end_stale() {
  bool any = false;
  for (auto& [id, stream] : streams_) {
    if (stream.incoming.unfinished_bytes() == 0 || stream.holding || stream.outcome) {
      continue;
    }
    if (std::exchange(stream.stale, true)) {
      ++ended_calls_;
      finish(id, {kGrpcDeadlineExceeded, "a message was begun and not ended in time"});
      count_bytes(id, stream);
    } else {
      any = true;
    }
  }
  return any;
}

void GrpcServerStreams::on_half_closed(int32_t id, Stream& stream) {
  if (stream.called && !stream.holding && !stream.outcome &&
      !std::exchange(stream.half_close_told, true)) {
    arrivals_.push_back({GrpcArrival::Kind::kHalfClosed, id, {}, std::nullopt});
  }
}

void GrpcServerStreams::hold(int32_t stream) {
  if (Stream* const found = find(stream)) {
    found->holding = true;
  }
}

void GrpcServerStreams::go_on(int32_t stream) {
  Stream* const found = find(stream);
  if (found == nullptr || !std::exchange(found->holding, false)) {
    return;
  }
  const std::string held = std::exchange(found->held, {});
  nghttp2_session_consume_stream(session_.get(), stream, held.size());
  feed(stream, *found, held);
  count_bytes(stream, *found);
  if (found->half_closed) {
    on_half_closed(stream, *found);
  }
}

void GrpcServerStreams::send(int32_t stream, std::string_view message) {
  Stream* const found = find(stream);
  if (found == nullptr || found->outcome) {
    return;
  }
  append_grpc_message(found->outgoing, message);
  if (!std::exchange(found->answering, true)) {
    const std::array head{http2_field(":status", "200"),
                          http2_field("content-type", kGrpcContentType)};
    nghttp2_data_provider provider{};
    provider.read_callback = Callbacks::on_read;
    nghttp2_submit_response(session_.get(), stream, head.data(), head.size(), &provider);
  } else if (std::exchange(found->starved, false)) {
    nghttp2_session_resume_data(session_.get(), stream);
  }
}

void GrpcServerStreams::finish(int32_t stream, const GrpcOutcome& outcome) {
  Stream* const found = find(stream);
  if (found == nullptr || found->outcome) {
    return;
  }
  found->outcome = outcome;
  if (!std::exchange(found->answering, true)) {
    submit_status(stream, outcome, true);
  } else if (std::exchange(found->starved, false)) {
    nghttp2_session_resume_data(session_.get(), stream);
  }
}

void GrpcServerStreams::submit_status(int32_t id, const GrpcOutcome& outcome, bool with_head) {
  const std::string status = std::to_string(outcome.status);
  const std::string message = percent_encoded(outcome.message.substr(0, kGrpcTextBytesMax));
  std::vector<nghttp2_nv> fields;
  if (with_head) {
    fields.push_back(http2_field(":status", "200"));
    fields.push_back(http2_field("content-type", kGrpcContentType));
  }
  fields.push_back(http2_field("grpc-status", status));
  if (!message.empty()) {
    fields.push_back(http2_field("grpc-message", message));
  }
  if (with_head) {
    nghttp2_submit_response(session_.get(), id, fields.data(), fields.size(), nullptr);
  } else {
    nghttp2_submit_trailer(session_.get(), id, fields.data(), fields.size());
  }
}

ssize_t GrpcServerStreams::read_answer(int32_t id, uint8_t* to, size_t size, uint32_t* flags) {
  Stream* const stream = find(id);
  if (stream == nullptr) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  if (stream->outgoing.empty() && stream->outcome) {
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    submit_status(id, *stream->outcome, false);
    return 0;
  }
  stream->starved = stream->outgoing.empty();
  return hand_out(stream->outgoing, to, size);
}

/// The client need not say the rest (RFC 9113, 8.1).
void GrpcServerStreams::on_sent_status(int32_t id) {
  const Stream* const stream = find(id);
  if (stream != nullptr && !stream->half_closed) {
    nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
  }
}

void GrpcServerStreams::on_closed(int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) {
    return;
  }
  if (found->second.called) {
    arrivals_.push_back({GrpcArrival::Kind::kGone, id, {}, std::nullopt});
  }
  share_.resize(found->second.counted_bytes, 0);
  streams_.erase(found);
}

size_t GrpcServerStreams::unsent_bytes(int32_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.outgoing.size();
}

void GrpcServerStreams::ping() {
  nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr);
}

void GrpcServerStreams::go_away() {
  nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_.get()), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}

void GrpcServerStreams::append_output(OutputBuffer& out) {
  append_http2_output(session_.get(), out);
}

}  // namespace stator::net::detail
