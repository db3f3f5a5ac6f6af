// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/net/http_request.h"

namespace stator::net::detail {

enum class ConnectionHeader : uint8_t { kNone, kClose, kKeepAlive };

struct ResponseHead {
  int status = 200;
  ConnectionHeader connection = ConnectionHeader::kNone;
  std::string_view date_line = {};                     ///< "date: …\r\n" or empty
  std::string_view cors_lines = {};                    ///< complete lines or empty
  std::string_view content_type = {};                  ///< empty: no such header
  std::optional<size_t> content_bytes = std::nullopt;  ///< Content-Length
  bool chunked = false;                                ///< Transfer-Encoding: chunked
  bool upgrades = false;                               ///< Connection: upgrade, and nothing else
};

/// Whether a response with this status has neither body nor length (1xx, 204, 304).
bool is_bodiless(int status);

/// Status line, headers and the empty line. Control characters in values become spaces, so a value
/// taken from a request cannot start a new header.
void append_head(std::string& out, const ResponseHead& head, std::span<const HttpHeader> headers);

/// "date: Tue, 15 Nov 1994 08:12:31 GMT\r\n"
std::string make_date_line(WallTime now);

}  // namespace stator::net::detail
