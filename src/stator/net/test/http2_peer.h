// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/net/detail/http2_session.h"

namespace stator::net {

/// A client's half of HTTP/2 for tests, without I/O: what it sends is a string.
class Http2Peer {
 public:
  struct Answer {
    std::map<std::string, std::string> fields;  ///< trailers too
    std::string body;
    bool ended = false;
    bool reset = false;
    uint32_t error = 0;
  };

  explicit Http2Peer(uint32_t window_bytes = 65535) {
    const detail::Http2Callbacks callbacks = detail::make_http2_callbacks();
    nghttp2_session_callbacks* const set = callbacks.get();
    nghttp2_session_callbacks_set_on_header_callback(set, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(set, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(set, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(set, on_close);
    nghttp2_session* session = nullptr;
    nghttp2_session_client_new(&session, set, this);
    session_.reset(session);
    const nghttp2_settings_entry entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window_bytes};
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &entry, 1);
  }

  int32_t ask(std::string_view method, std::string_view path, std::string_view body = {},
              const std::vector<std::pair<std::string, std::string>>& headers = {}) {
    std::vector<nghttp2_nv> fields = {
        detail::http2_field(":method", method), detail::http2_field(":scheme", "http"),
        detail::http2_field(":authority", "test"), detail::http2_field(":path", path)};
    for (const auto& [name, value] : headers) {
      fields.push_back(detail::http2_field(name, value));
    }
    bodies_.emplace_back(body);
    nghttp2_data_provider provider{};
    provider.source.ptr = &bodies_.back();
    provider.read_callback = on_read;
    return nghttp2_submit_request(session_.get(), nullptr, fields.data(), fields.size(),
                                  body.empty() ? nullptr : &provider, nullptr);
  }
  nghttp2_session* session() { return session_.get(); }

  std::string output() {
    std::string bytes;
    const uint8_t* part = nullptr;
    for (ssize_t size = 0; (size = nghttp2_session_mem_send(session_.get(), &part)) > 0;) {
      bytes.append(reinterpret_cast<const char*>(part), static_cast<size_t>(size));
    }
    return bytes;
  }
  bool receive(std::string_view bytes) {
    return nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()),
                                    bytes.size()) >= 0;
  }
  Answer& answer(int32_t id) { return answers_[id]; }
  bool told_to_leave = false;  ///< GOAWAY came
  uint32_t goodbye_error = 0;

 private:
  static Http2Peer& self(void* user) { return *static_cast<Http2Peer*>(user); }
  static std::string text(const uint8_t* bytes, size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                       void* user) {
    self(user).answers_[frame->hd.stream_id].fields[text(name, name_size)] =
        text(value, value_size);
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size,
                     void* user) {
    self(user).answers_[id].body += text(data, size);
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      self(user).told_to_leave = true;
      self(user).goodbye_error = frame->goaway.error_code;
    }
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
      self(user).answers_[frame->hd.stream_id].reset = true;
    }
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      self(user).answers_[frame->hd.stream_id].ended = true;
    }
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t id, uint32_t error, void* user) {
    self(user).answers_[id].error = error;
    return 0;
  }
  static ssize_t on_read(nghttp2_session*, int32_t, uint8_t* to, size_t size, uint32_t* flags,
                         nghttp2_data_source* source, void*) {
    auto& left = *static_cast<std::string*>(source->ptr);
    const size_t count = left.copy(reinterpret_cast<char*>(to), size);
    left.erase(0, count);
    *flags |= left.empty() ? NGHTTP2_DATA_FLAG_EOF : NGHTTP2_DATA_FLAG_NONE;
    return static_cast<ssize_t>(count);
  }

  detail::Http2Session session_;
  std::map<int32_t, Answer> answers_;
  std::list<std::string> bodies_;
};

}  // namespace stator::net
