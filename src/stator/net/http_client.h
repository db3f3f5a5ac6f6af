// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::net {

using HttpHeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpClientOptions {
  Duration connect_timeout = std::chrono::seconds(10);
  /// Whole request; zero for none (downloads: the stall limit below still ends dead ones).
  Duration timeout = std::chrono::seconds(60);
  /// Aborts when less than one byte per second arrives for this long; zero for never.
  Duration stall_timeout = std::chrono::seconds(30);
  /// Continue a download at this byte: sends Range, expects 206 (a 200 restarts from 0; see
  /// status).
  uint64_t resume_from = 0;
  /// Response body kept in memory; beyond: kTooLarge. Not applied to bytes given to `on_chunk`.
  size_t body_bytes_max = 64UL * 1024 * 1024;
  bool follow_redirects = true;  ///< at most 10
  std::string tls_ca_path;       ///< PEM file; empty for the system's
  bool tls_insecure = false;     ///< accept any certificate (tests only)
  /// HTTP/2 from the first byte, for servers that speak nothing else; trailers are among headers.
  bool http2 = false;
};

struct HttpClientRequest {
  std::string method = "GET";
  std::string url;
  HttpHeaderList headers;
  std::string body;
};

struct HttpClientResponse {
  int status = 0;
  HttpHeaderList headers;  ///< of the last response when redirected; names in lower case
  std::string body;        ///< empty when `on_chunk` took it
  /// First header of that lower-case name.
  std::optional<std::string_view> header(std::string_view name) const;
};

/// Body bytes as they arrive; false aborts the transfer (the call then fails with kCancelled).
using OnChunk = std::function<bool(std::string_view bytes)>;

/// One blocking HTTP/1.1 request on libcurl, for command-line tools, downloads and tests; never on
/// a shard. Any thread. Any status is a success here. Fails with kInvalidArgument (bad URL),
/// kUnavailable (cannot connect, TLS refused), kDeadline, kDisconnected (cut short), kTooLarge,
/// kCancelled. Proxies come from the environment as for curl, never for loopback addresses.
Result<HttpClientResponse> http_request(const HttpClientRequest& request,
                                        const HttpClientOptions& options = {},
                                        const OnChunk& on_chunk = {});

/// The same, one request after another over connections that stay open: a third of the cost on a
/// loopback, and far less over TLS. One thread at a time.
class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  Result<HttpClientResponse> request(const HttpClientRequest& request,
                                     const HttpClientOptions& options = {},
                                     const OnChunk& on_chunk = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stator::net
