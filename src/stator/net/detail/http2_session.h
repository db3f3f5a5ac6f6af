// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "stator/net/detail/output_buffer.h"

/// What everything here that speaks HTTP/2 stands on: nghttp2's sessions. gRPC's two halves and the
/// HTTP server use it.
namespace stator::net::detail {

/// DATA frames that we take of other parts of a fleet may be as long.
inline constexpr uint32_t kHttp2FrameBytesMax = uint32_t{1024} * 1024;
/// What a client may send ahead of us on one stream, and on all streams of a connection.
inline constexpr int32_t kHttp2StreamWindowBytes = 1024 * 1024;
inline constexpr int32_t kHttp2ConnectionWindowBytes = 4 * 1024 * 1024;

struct Http2SessionDeleter {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
};
using Http2Session = std::unique_ptr<nghttp2_session, Http2SessionDeleter>;

struct Http2CallbacksDeleter {
  void operator()(nghttp2_session_callbacks* of) const { nghttp2_session_callbacks_del(of); }
};
using Http2Callbacks = std::unique_ptr<nghttp2_session_callbacks, Http2CallbacksDeleter>;

/// What nghttp2 calls from inside receiving and sending; to be filled in.
Http2Callbacks make_http2_callbacks();

struct Http2ServerOptions {
  uint32_t streams_max = 0;  ///< at once; further ones are refused
  uint32_t frame_bytes_max = kHttp2FrameBytesMax;
  uint32_t header_list_bytes = 0;      ///< what clients are told that headers may have
  bool consumes_by_itself = true;      ///< windows open again as data comes; else by consume calls
  bool takes_other_protocols = false;  ///< clients may ask for tunnels (RFC 8441)
};

/// The server's side of a connection, with its first SETTINGS queued. nghttp2's own bounds hold
/// beside the options': unread answers to PING and SETTINGS, CONTINUATION frames, reset streams.
Http2Session make_http2_server(const nghttp2_session_callbacks& callbacks, void* user,
                               const Http2ServerOptions& options);

/// A header field to submit; nghttp2 copies both.
nghttp2_nv http2_field(std::string_view name, std::string_view value);

/// Nothing more will be read or written: the peer broke HTTP/2's rules or both are done.
bool http2_given_up(nghttp2_session* session);

/// Appends what the session has to send now.
void append_http2_output(nghttp2_session* session, OutputBuffer& out);

/// nghttp2's data source: as many of `from`'s bytes as fit, or NGHTTP2_ERR_DEFERRED.
ssize_t hand_out(OutputBuffer& from, uint8_t* to, size_t size);

}  // namespace stator::net::detail
