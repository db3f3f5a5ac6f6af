// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/error_code.h"

namespace stator::net::detail {
namespace {

// What a server may send ahead of us, on the stream and on the connection.
constexpr int32_t kWindowBytes = 4 * 1024 * 1024;
constexpr uint32_t kFrameBytesMax = 1024 * 1024;
constexpr size_t kPrefixBytes = 5;  // compressed flag, length
constexpr size_t kStatusTextMax = 4096;
// A drained buffer keeps this much.
constexpr size_t kCapacityKept = 64 * 1024;
// A partly sent buffer is moved to the front of its memory once this much is gone.
constexpr size_t kCompactFrom = 64 * 1024;

constexpr int kGrpcUnknown = 2;
constexpr int kGrpcInternal = 13;
constexpr int kGrpcUnavailable = 14;

uint32_t read_length(const char* bytes) {
  std::array<unsigned char, 4> raw{};
  std::memcpy(raw.data(), bytes, raw.size());
  return uint32_t{raw[0]} << 24 | uint32_t{raw[1]} << 16 | uint32_t{raw[2]} << 8 | raw[3];
}

nghttp2_nv field(std::string_view name, std::string_view value) {
  // nghttp2 copies both and writes to neither.
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/// grpc-message is percent-encoded; what is not stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

int parse_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

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
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) {
      self.pings_answered_ = self.pings_sent_;
    }
    if (frame->hd.stream_id == self.stream_ && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA)) {
      self.on_end_of_stream();  // our half is open still, so the stream does not close
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
    return static_cast<GrpcStream*>(user)->hand_out(to, size, flags);
  }
};

GrpcStream::GrpcStream(const Request& request, GrpcCallListener& listener)
    : listener_(listener), message_bytes_max_(request.message_bytes_max) {
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
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kFrameBytesMax}};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, kWindowBytes);
  const std::array fields{
      field(":method", "POST"),     field(":scheme", request.tls ? "https" : "http"),
      field(":path", request.path), field(":authority", request.authority),
      field("te", "trailers"),      field("content-type", "application/grpc"),
      field("user-agent", "stator")};
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::on_read;
  stream_ =
      nghttp2_submit_request(session, nullptr, fields.data(), fields.size(), &provider, nullptr);
  STATOR_ASSERT(stream_ > 0, "a fresh connection takes a request");
}

GrpcStream::~GrpcStream() = default;

void GrpcStream::send(std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  const std::array prefix{'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                          static_cast<char>(size >> 8), static_cast<char>(size)};
  outgoing_.append(prefix.data(), prefix.size());
  outgoing_.append(message);
  if (std::exchange(starved_, false)) {
    nghttp2_session_resume_data(session_.get(), stream_);
  }
}

void GrpcStream::ping() {
  nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, nullptr);
  ++pings_sent_;
}

void GrpcStream::cancel() {
  ended_ = true;
  nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, stream_, NGHTTP2_CANCEL);
}

ssize_t GrpcStream::hand_out(uint8_t* to, size_t size, uint32_t* /*flags*/) {
  const size_t count = std::min(size, unsent_bytes());
  if (count == 0) {
    starved_ = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  std::memcpy(to, outgoing_.data() + handed_out_, count);
  handed_out_ += count;
  if (handed_out_ == outgoing_.size()) {
    outgoing_.clear();
    handed_out_ = 0;
    if (outgoing_.capacity() > kCapacityKept) {
      outgoing_.shrink_to_fit();
    }
  } else if (handed_out_ >= kCompactFrom && handed_out_ >= outgoing_.size() / 2) {
    outgoing_.erase(0, handed_out_);
    handed_out_ = 0;
  }
  return static_cast<ssize_t>(count);
}

void GrpcStream::append_output(std::string& out) {
  for (;;) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_.get(), &bytes);
    if (size <= 0) {
      return;  // an error is memory's end; the stream then starves and the keep-alive ends it
    }
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

bool GrpcStream::given_up() const {
  return nghttp2_session_want_read(session_.get()) == 0 &&
         nghttp2_session_want_write(session_.get()) == 0;
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
    http_status_ = parse_number(value);
  } else if (name == "content-type") {
    grpc_answer_ = value.starts_with("application/grpc");
  } else if (name == "grpc-status") {
    grpc_status_ = parse_number(value);
    grpc_status_ = grpc_status_ < 0 ? kGrpcUnknown : grpc_status_;
  } else if (name == "grpc-message") {
    grpc_message_ = percent_decoded(value.substr(0, kStatusTextMax));
  }
}

void GrpcStream::take_data(std::string_view bytes) {
  if (!grpc_answer_ || http_status_ != 200) {
    return;  // a web page, perhaps; told when it has ended
  }
  while (!ended_ && !bytes.empty()) {
    // Whole messages go on from where they are; others are put together first.
    const bool whole_prefix = incoming_.empty() && bytes.size() >= kPrefixBytes;
    if (!whole_prefix && incoming_.size() < kPrefixBytes) {
      const size_t count = std::min(kPrefixBytes - incoming_.size(), bytes.size());
      incoming_.append(bytes.substr(0, count));
      bytes.remove_prefix(count);
      if (incoming_.size() < kPrefixBytes) {
        return;
      }
    }
    const char* const prefix = whole_prefix ? bytes.data() : incoming_.data();
    const size_t size = read_length(prefix + 1);
    if (*prefix != 0 || size > message_bytes_max_) {
      end({kGrpcInternal, *prefix != 0 ? "a message is compressed, which was not offered"
                                       : fmt::format("a message of {} bytes, more than {}", size,
                                                     message_bytes_max_)});
      return;
    }
    if (whole_prefix && bytes.size() - kPrefixBytes >= size) {
      const std::string_view message = bytes.substr(kPrefixBytes, size);
      bytes.remove_prefix(kPrefixBytes + size);
      listener_.on_message(message);
      continue;
    }
    const size_t count = std::min(kPrefixBytes + size - incoming_.size(), bytes.size());
    incoming_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (incoming_.size() == kPrefixBytes + size) {
      std::string whole = std::exchange(incoming_, {});
      listener_.on_message(std::string_view(whole).substr(kPrefixBytes));
      if (whole.capacity() <= kCapacityKept) {
        whole.clear();
        incoming_ = std::move(whole);
      }
    }
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
