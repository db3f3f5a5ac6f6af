// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/core/assert.h"
#include "stator/text/percent.h"

namespace stator::net::detail {
namespace {

// What a server may send ahead of us, on the stream and on the connection.
constexpr int32_t kWindowBytes = 4 * 1024 * 1024;

}  // namespace

/// nghttp2's calls, which all come from inside mem_recv and mem_send.
struct GrpcStream::Callbacks {
  static int on_header(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                       const uint8_t* name, size_t name_size, const uint8_t* value,
                       size_t value_size, uint8_t /*flags*/, void* user) {
    auto& self = *static_cast<GrpcStream*>(user);
    if (frame->hd.stream_id == self.stream_) {
      self.take_header({reinterpret_cast<const char*>(name), name_size},
                       {reinterpret_cast<const char*>(value), value_size});
    }
    return 0;
  }
  static int on_data(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t /*stream*/,
                     const uint8_t* data, size_t size, void* user) {
    static_cast<GrpcStream*>(user)->take_data({reinterpret_cast<const char*>(data), size});
    return 0;
  }
  static int on_frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    auto& self = *static_cast<GrpcStream*>(user);
    if (frame->hd.stream_id == self.stream_ && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)) {
      self.on_end_of_stream();  // our half may be open still, so the stream may not close
    }
    return 0;
  }
  static int on_close(nghttp2_session* /*session*/, int32_t stream, uint32_t error, void* user) {
    auto& self = *static_cast<GrpcStream*>(user);
    if (stream == self.stream_) {
      self.on_broken_off(error);
    }
    return 0;
  }
  static ssize_t on_read(nghttp2_session* /*session*/, int32_t /*stream*/, uint8_t* to, size_t size,
                         uint32_t* flags, nghttp2_data_source* /*source*/, void* user) {
    auto& self = *static_cast<GrpcStream*>(user);
    self.starved_ = self.outgoing_.empty() && !self.sent_all_;
    const ssize_t bytes = hand_out(self.outgoing_, to, size);
    if (self.sent_all_ && self.outgoing_.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      return std::max<ssize_t>(bytes, 0);
    }
    return bytes;
  }
};

GrpcStream::GrpcStream(const Request& request, GrpcCallListener& listener)
    : listener_(listener), incoming_(request.message_bytes_max) {
  nghttp2_session_callbacks* callbacks = nullptr;
  STATOR_ASSERT(nghttp2_session_callbacks_new(&callbacks) == 0, "memory for an HTTP/2 session");
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::on_close);
  nghttp2_session* session = nullptr;
  STATOR_ASSERT(nghttp2_session_client_new(&session, callbacks, this) == 0,
                "memory for an HTTP/2 session");
  nghttp2_session_callbacks_del(callbacks);
  session_.reset(session);

  const std::array settings{
      nghttp2_settings_entry{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindowBytes},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kHttp2FrameBytesMax}};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, kWindowBytes);
  const std::array fields{
      http2_field(":method", "POST"),     http2_field(":scheme", request.tls ? "https" : "http"),
      http2_field(":path", request.path), http2_field(":authority", request.authority),
      http2_field("te", "trailers"),      http2_field("content-type", kGrpcContentType),
      http2_field("user-agent", "stator")};
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::on_read;
  stream_ =
      nghttp2_submit_request(session, nullptr, fields.data(), fields.size(), &provider, nullptr);
  STATOR_ASSERT(stream_ > 0, "a fresh connection takes a request");
}

GrpcStream::~GrpcStream() = default;

void GrpcStream::send(std::string_view message) {
  append_grpc_message(outgoing_, message);
  if (std::exchange(starved_, false)) {
    nghttp2_session_resume_data(session_.get(), stream_);
  }
}

void GrpcStream::finish_sending() {
  sent_all_ = true;
  if (std::exchange(starved_, false)) {
    nghttp2_session_resume_data(session_.get(), stream_);
  }
}

void GrpcStream::ping() {
  nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr);
}

void GrpcStream::cancel() {
  ended_ = true;
  nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, stream_, NGHTTP2_CANCEL);
}

void GrpcStream::append_output(OutputBuffer& out) {
  append_http2_output(session_.get(), out);
}

void GrpcStream::receive(std::string_view bytes) {
  const ssize_t taken = nghttp2_session_mem_recv(
      session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0) {
    end({kGrpcUnavailable, fmt::format("the server does not speak HTTP/2: {}",
                                       nghttp2_strerror(static_cast<int>(taken)))});
  }
}

void GrpcStream::take_header(std::string_view name, std::string_view value) {
  if (name == ":status") {
    http_status_ = parse_grpc_number(value);
  } else if (name == "content-type") {
    grpc_answer_ = value.starts_with(kGrpcContentType);
  } else if (name == "grpc-status") {
    grpc_status_ = parse_grpc_number(value);
    grpc_status_ = grpc_status_ < 0 ? kGrpcUnknown : grpc_status_;
  } else if (name == "grpc-message") {
    grpc_message_ = text::percent_decode(value.substr(0, kGrpcTextBytesMax));
  }
}

void GrpcStream::take_data(std::string_view bytes) {
  if (!grpc_answer_ || http_status_ != 200) {
    return;  // a web page, perhaps; told when it has ended
  }
  while (!ended_) {
    const auto message = incoming_.next(bytes);
    if (!message) {
      break;
    }
    listener_.on_message(*message);
  }
  if (incoming_.trouble()) {
    end(*incoming_.trouble());
  }
}

void GrpcStream::on_end_of_stream() {
  if (grpc_status_ >= 0) {
    end({grpc_status_, std::move(grpc_message_)});
  } else if (http_status_ != 200 || !grpc_answer_) {
    end({kGrpcUnavailable, fmt::format("HTTP status {}: no gRPC server", http_status_)});
  } else {
    end({kGrpcUnknown, "the server ended the call without a status"});
  }
}

void GrpcStream::on_broken_off(uint32_t http2_error) {
  end({kGrpcUnavailable,
       fmt::format("the server broke the call off: {}", nghttp2_http2_strerror(http2_error))});
}

void GrpcStream::end(GrpcOutcome outcome) {
  if (!std::exchange(ended_, true)) {
    listener_.on_end(std::move(outcome));
  }
}

}  // namespace stator::net::detail
