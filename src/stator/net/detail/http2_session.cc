// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/http2_session.h"

#include <cstring>
#include <vector>

#include "stator/core/assert.h"

namespace stator::net::detail {
namespace {

struct OptionDeleter {
  void operator()(nghttp2_option* option) const { nghttp2_option_del(option); }
};

// Twice what Http2Requests allows, so that its bound is the one that is met.
constexpr uint64_t kResetsAtOnceMax = 2000;
constexpr uint64_t kResetsPerSecondMax = 200;

}  // namespace

Http2Callbacks make_http2_callbacks() {
  nghttp2_session_callbacks* raw = nullptr;
  STATOR_ASSERT(nghttp2_session_callbacks_new(&raw) == 0, "memory for an HTTP/2 session");
  return Http2Callbacks(raw);
}

Http2Session make_http2_server(const nghttp2_session_callbacks& callbacks, void* user,
                               const Http2ServerOptions& options) {
  nghttp2_option* raw_option = nullptr;
  STATOR_ASSERT(nghttp2_option_new(&raw_option) == 0, "memory for an HTTP/2 session");
  const std::unique_ptr<nghttp2_option, OptionDeleter> option(raw_option);
  nghttp2_option_set_no_auto_window_update(raw_option, options.consumes_by_itself ? 0 : 1);
  // Its own bound, 1,000 at once and 33 a second, would end connections before Http2Requests counts
  // them (P3), and a proxy's clients together cancel more.
  nghttp2_option_set_stream_reset_rate_limit(raw_option, kResetsAtOnceMax, kResetsPerSecondMax);
  nghttp2_session* raw = nullptr;
  STATOR_ASSERT(nghttp2_session_server_new2(&raw, &callbacks, user, raw_option) == 0,
                "memory for an HTTP/2 session");
  Http2Session session(raw);
  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options.streams_max},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kHttp2StreamWindowBytes},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options.frame_bytes_max},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options.header_list_bytes}};
  if (options.takes_other_protocols) {
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1});
  }
  nghttp2_submit_settings(raw, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(raw, NGHTTP2_FLAG_NONE, 0, kHttp2ConnectionWindowBytes);
  return session;
}

nghttp2_nv http2_field(std::string_view name, std::string_view value) {
  // nghttp2 writes to neither.
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

bool http2_given_up(nghttp2_session* session) {
  return nghttp2_session_want_read(session) == 0 && nghttp2_session_want_write(session) == 0;
}

void append_http2_output(nghttp2_session* session, OutputBuffer& out) {
  for (;;) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session, &bytes);
    if (size <= 0) {
      return;  // an error is memory's end; the streams then starve and the keep-alive ends them
    }
    out.append_raw({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)});
  }
}

ssize_t hand_out(OutputBuffer& from, uint8_t* to, size_t size) {
  const std::string_view bytes = from.front().substr(0, size);
  if (bytes.empty()) {
    return NGHTTP2_ERR_DEFERRED;
  }
  std::memcpy(to, bytes.data(), bytes.size());
  from.consume(bytes.size());
  return static_cast<ssize_t>(bytes.size());
}

}  // namespace stator::net::detail
