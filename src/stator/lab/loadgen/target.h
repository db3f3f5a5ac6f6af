// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::loadgen {

/// The server a run talks to, from its URL.
struct Target {
  bool tls = false;
  std::string host;  ///< name or address, without brackets
  uint16_t port = 80;
  std::string host_header;
  std::string base_path;  ///< "" or "/v1", without a slash at its end
};

/// "http://host:8000", "https://[::1]:8443/v1". kInvalidArgument, naming what is wrong.
Result<Target> parse_target(std::string_view url);

/// The path of the requests: `endpoint` behind what the URL has; "/v1" is not doubled.
std::string request_path(const Target& target, std::string_view endpoint);

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};
/// Looks the name up, blocking. Of several addresses (`localhost` may be ::1 and 127.0.0.1) the
/// first that takes a connection, see choose_address(). kUnavailable when the name is unknown.
Result<Address> resolve(const Target& target);

/// The first address that takes a TCP connection within a second; the first one if none does or
/// there is only one. Blocking; `addresses` must not be empty.
Address choose_address(std::span<const Address> addresses);

}  // namespace stator::loadgen
