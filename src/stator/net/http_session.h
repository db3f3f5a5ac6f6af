// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "stator/core/result.h"
#include "stator/net/http_client.h"

namespace stator::net {

/// PEM texts, not paths: whoever holds them reads their files again when they change.
struct SessionCredentials {
  std::string ca;           ///< who may sign the server's certificate; empty: the system's
  std::string certificate;  ///< ours, for servers that ask for one; empty: none
  std::string key;
};

/// Blocking requests to one server on connections that stay open between them. One thread at a
/// time; several sessions for several threads.
class HttpSession {
 public:
  /// `stop`, if any, outlives the session; once it is true, a request ends within about a second.
  explicit HttpSession(SessionCredentials credentials, const std::atomic<bool>* stop = nullptr);
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;
  ~HttpSession();

  /// As http_request(). `options.tls_ca_path` is not used.
  Result<HttpClientResponse> request(const HttpClientRequest& request,
                                     const HttpClientOptions& options = {},
                                     const OnChunk& on_chunk = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stator::net
