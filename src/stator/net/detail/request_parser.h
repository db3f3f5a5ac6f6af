// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/net/http_request.h"

namespace stator::net {
class HttpHandler;
}

namespace stator::net::detail {

struct ParserLimits {
  size_t header_bytes_max;
  size_t headers_max;
  size_t body_bytes_max;
  /// Asked for the BodyRule of every request; body_bytes_max holds beside it. Null: no more rules.
  const HttpHandler* handler = nullptr;
};

/// Why a request is refused before the handler sees it: what to answer.
struct Refusal {
  int status;
  std::string message;
  bool not_http = false;  ///< the client speaks something else: an answer in HTTP would be noise
};

/// Parses one HTTP/1.x request from any split of its bytes into the same result. Beast does the
/// grammar of heads, ChunkDecoder that of chunked bodies; what Beast lets pass and a server behind
/// proxies must not is refused here: both or repeated lengths, transfer codings other than chunked,
/// no or two Host fields, folded header lines, bare line feeds, unbounded chunk extensions and
/// trailers. Memory: limits.header_bytes_max plus the body so far.
///
///   feed* → complete() → take_request()     one request per object
///   feed* → refusal()                       final; nothing more is consumed
class RequestParser {
 public:
  /// `limits` outlives it.
  explicit RequestParser(const ParserLimits& limits);
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;
  ~RequestParser();

  /// Consumes a prefix of `bytes` and returns its length: all of it, unless the request is complete
  /// or refused earlier. Bytes after the request belong to the next one.
  size_t feed(std::string_view bytes);

  /// At least one byte of the request line has been seen (empty lines before it do not count).
  bool started() const;
  bool headers_complete() const;
  bool complete() const;
  const std::optional<Refusal>& refusal() const;
  /// What has been read of it.
  const HttpRequest& request() const;
  /// Of the request line and the headers, so far.
  size_t head_bytes_received() const;

  // After headers_complete().
  bool expects_continue() const;  ///< the client waits for "100 Continue" before the body
  bool keep_alive() const;
  bool is_http_1_0() const;
  size_t body_bytes_received() const;

  /// Once, after complete().
  HttpRequest take_request();

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace stator::net::detail
