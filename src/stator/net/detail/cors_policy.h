// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/net/http_request.h"

namespace stator::net::detail {

/// Whose pages may use the server from a browser, and the words for it (CORS, as the Fetch standard
/// has it). No credentials: keys travel in headers that pages set themselves.
class CorsPolicy {
 public:
  /// A list with commas of origins ("https://chat.example:8443", "null" for pages from files), or
  /// "*" for every one. Empty: nobody's, and not a word about it. kInvalidArgument for other text.
  static Result<CorsPolicy> parse(std::string_view origins);

  /// Whether `request` comes from a page of an allowed origin.
  bool allows(const HttpRequest& request) const { return find(request) != nullptr; }
  /// Header lines that every answer to `request` carries.
  std::string_view lines_for(const HttpRequest& request) const;
  /// Whether `request` is a browser's question, on behalf of an allowed origin, if it may send
  /// another one. Those of other origins are requests like any other.
  bool is_preflight(const HttpRequest& request) const;

 private:
  struct Allowed {
    std::string origin;
    std::string lines;
  };
  const Allowed* find(const HttpRequest& request) const;

  std::vector<Allowed> allowed_;
};

/// What the answer to a preflight carries beside lines_for(). Views into `request`.
std::vector<HttpHeader> make_preflight_headers(const HttpRequest& request);

}  // namespace stator::net::detail
