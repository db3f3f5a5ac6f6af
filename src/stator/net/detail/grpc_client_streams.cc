// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_client_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/text/percent.h"

namespace stator::net::detail {
namespace {

// What a server may send ahead of us, on a stream and on the connection.
constexpr int32_t kWindowBytes = 4 * 1024 * 1024;

}  // namespace

/// nghttp2's calls, which all come from inside mem_recv and mem_send.
struct GrpcClientStreams::Callbacks {
  static GrpcClientStreams& self(void* user) { return *static_cast<GrpcClientStreams*>(user); }

  static int on_header(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                       const uint8_t* name, size_t name_size, const uint8_t* value,
                       size_t value_size, uint8_t /*flags*/, void* user) {
    if (Stream* const stream = self(user).find(frame->hd.stream_id)) {
      take_header(*stream, {reinterpret_cast<const char*>(name), name_size},
                  {reinterpret_cast<const char*>(value), value_size});
    }
    return 0;
  }
  static int on_data(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t id,
                     const uint8_t* data, size_t size, void* user) {
    if (Stream* const stream = self(user).find(id)) {
      self(user).take_data(id, *stream, {reinterpret_cast<const char*>(data), size});
    }
    return 0;
  }
  static int on_frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    const bool carries_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    Stream* const stream = self(user).find(frame->hd.stream_id);
    if (stream != nullptr && carries_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      self(user).on_end_of_stream(frame->hd.stream_id, *stream);
    }
    return 0;
  }
  static int on_close(nghttp2_session* /*session*/, int32_t id, uint32_t error, void* user) {
    self(user).on_closed(id, error);
    return 0;
  }
  static ssize_t on_read(nghttp2_session* /*session*/, int32_t id, uint8_t* to, size_t size,
                         uint32_t* flags, nghttp2_data_source* /*source*/, void* user) {
    Stream* const stream = self(user).find(id);
    if (stream == nullptr) {
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    stream->starved = stream->outgoing.empty() && !stream->sent_all;
    const ssize_t bytes = hand_out(stream->outgoing, to, size);
    if (stream->sent_all && stream->outgoing.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      return std::max<ssize_t>(bytes, 0);
    }
    return bytes;
  }
};

GrpcClientStreams::GrpcClientStreams(std::string authority, bool tls)
    : authority_(std::move(authority)), tls_(tls) {
  const Http2Callbacks callbacks = make_http2_callbacks();
  nghttp2_session_callbacks* const set = callbacks.get();
  nghttp2_session_callbacks_set_on_header_callback(set, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(set, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(set, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(set, Callbacks::on_close);
  nghttp2_session* session = nullptr;
  STATOR_ASSERT(nghttp2_session_client_new(&session, set, this) == 0,
                "memory for an HTTP/2 session");
  session_.reset(session);

  const std::array settings{
      nghttp2_settings_entry{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindowBytes},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kHttp2FrameBytesMax}};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, kWindowBytes);
}

GrpcClientStreams::~GrpcClientStreams() = default;

int32_t GrpcClientStreams::begin(const Call& call, GrpcCallListener& listener) {
  if (!takes_calls()) {
    return 0;
  }
  std::vector<nghttp2_nv> fields{
      http2_field(":method", "POST"), http2_field(":scheme", tls_ ? "https" : "http"),
      http2_field(":path", call.path), http2_field(":authority", authority_),
      http2_field("te", "trailers")};
  const std::string timeout = call.timeout ? format_grpc_timeout(*call.timeout) : std::string();
  if (call.timeout) {
    fields.push_back(http2_field("grpc-timeout", timeout));
  }
  fields.push_back(http2_field("content-type", kGrpcContentType));
  fields.push_back(http2_field("user-agent", "stator"));
  for (const auto& [name, value] : call.metadata) {
    fields.push_back(http2_field(name, value));
  }
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::on_read;
  const int32_t id = nghttp2_submit_request(session_.get(), nullptr, fields.data(), fields.size(),
                                            &provider, nullptr);
  if (id <= 0) {
    return 0;
  }
  streams_.try_emplace(id, call.message_bytes_max, listener);
  ++open_calls_;
  return id;
}

GrpcClientStreams::Stream* GrpcClientStreams::find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

void GrpcClientStreams::resume(int32_t id, Stream& stream) {
  if (std::exchange(stream.starved, false)) {
    nghttp2_session_resume_data(session_.get(), id);
  }
}

void GrpcClientStreams::send(int32_t stream, std::string_view message) {
  Stream* const found = find(stream);
  if (found != nullptr && found->listener != nullptr) {
    append_grpc_message(found->outgoing, message);
    resume(stream, *found);
  }
}

void GrpcClientStreams::finish_sending(int32_t stream) {
  Stream* const found = find(stream);
  if (found != nullptr && found->listener != nullptr) {
    found->sent_all = true;
    resume(stream, *found);
  }
}

size_t GrpcClientStreams::unsent_bytes(int32_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.outgoing.size();
}

void GrpcClientStreams::reset(int32_t id) {
  nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
}

void GrpcClientStreams::cancel(int32_t stream) {
  Stream* const found = find(stream);
  if (found != nullptr && found->listener != nullptr) {
    found->listener = nullptr;
    found->outgoing.clear();
    --open_calls_;
    reset(stream);
  }
}

void GrpcClientStreams::end(int32_t stream, GrpcOutcome outcome) {
  Stream* const found = find(stream);
  if (found != nullptr && found->listener != nullptr) {
    reset(stream);
    tell_end(*found, std::move(outcome));
  }
}

void GrpcClientStreams::end_all(const GrpcOutcome& outcome) {
  std::vector<int32_t> open;
  for (const auto& [id, stream] : streams_) {
    open.push_back(id);
  }
  for (const int32_t id : open) {
    end(id, outcome);
  }
}

void GrpcClientStreams::ping() {
  nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr);
}

bool GrpcClientStreams::takes_calls() const {
  return nghttp2_session_check_request_allowed(session_.get()) != 0;
}

void GrpcClientStreams::append_output(OutputBuffer& out) {
  append_http2_output(session_.get(), out);
}

void GrpcClientStreams::receive(std::string_view bytes) {
  const ssize_t taken = nghttp2_session_mem_recv(
      session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0) {
    end_all({kGrpcUnavailable, fmt::format("the server does not speak HTTP/2: {}",
                                           nghttp2_strerror(static_cast<int>(taken)))});
  }
}

void GrpcClientStreams::take_header(Stream& stream, std::string_view name, std::string_view value) {
  if (name == ":status") {
    stream.http_status = parse_grpc_number(value);
  } else if (name == "content-type") {
    stream.grpc_answer = value.starts_with(kGrpcContentType);
  } else if (name == "grpc-status") {
    const int status = parse_grpc_number(value);
    stream.grpc_status = status < 0 ? kGrpcUnknown : status;
  } else if (name == "grpc-message") {
    stream.grpc_message = text::percent_decode(value.substr(0, kGrpcTextBytesMax));
  }
}

void GrpcClientStreams::take_data(int32_t id, Stream& stream, std::string_view bytes) {
  if (!stream.grpc_answer || stream.http_status != 200) {
    return;  // a web page, perhaps; told when it has ended
  }
  while (stream.listener != nullptr) {
    const auto message = stream.incoming.next(bytes);
    if (!message) {
      break;
    }
    stream.listener->on_message(*message);
  }
  if (stream.incoming.trouble()) {
    end(id, *stream.incoming.trouble());
  }
}

void GrpcClientStreams::on_end_of_stream(int32_t id, Stream& stream) {
  if (stream.listener == nullptr) {
    return;
  }
  GrpcOutcome outcome{stream.grpc_status, std::move(stream.grpc_message)};
  if (outcome.status < 0 && (stream.http_status != 200 || !stream.grpc_answer)) {
    outcome = {kGrpcUnavailable, fmt::format("HTTP status {}: no gRPC server", stream.http_status)};
  } else if (outcome.status < 0) {
    outcome = {kGrpcUnknown, "the server ended the call without a status"};
  }
  if (!stream.sent_all || !stream.outgoing.empty()) {
    reset(id);  // our half is open still, and nobody wants to hear it
  }
  tell_end(stream, std::move(outcome));
}

void GrpcClientStreams::on_closed(int32_t id, uint32_t http2_error) {
  Stream* const stream = find(id);
  if (stream == nullptr) {
    return;
  }
  if (stream->listener != nullptr) {
    tell_end(*stream, {kGrpcUnavailable, fmt::format("the server broke the call off: {}",
                                                     nghttp2_http2_strerror(http2_error))});
  }
  streams_.erase(id);
}

void GrpcClientStreams::tell_end(Stream& stream, GrpcOutcome outcome) {
  GrpcCallListener* const listener = std::exchange(stream.listener, nullptr);
  stream.outgoing.clear();
  --open_calls_;
  listener->on_end(std::move(outcome));
}

}  // namespace stator::net::detail
