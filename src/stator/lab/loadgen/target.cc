// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/target.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <vector>

namespace stator::loadgen {
namespace {

constexpr int kTryMs = 1000;

bool takes_connections(const Address& address) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return false;
  }
  static_cast<void>(
      ::connect(fd, std::bit_cast<const sockaddr*>(&address.storage), address.length));
  pollfd state{.fd = fd, .events = POLLOUT, .revents = 0};
  int error = 0;
  socklen_t length = sizeof(error);
  const bool taken = ::poll(&state, 1, kTryMs) == 1 && (state.revents & POLLHUP) == 0 &&
                     ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  ::close(fd);
  return taken;
}

}  // namespace

Result<Target> parse_target(std::string_view url) {
  const auto wrong = [url](std::string_view why) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("--url '{}': {}; expected http://HOST:PORT or https://HOST:PORT", url, why));
  };
  Target target;
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    target.tls = true;
    target.port = 443;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return wrong("does not begin with http:// or https://");
  }
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash);
  while (path.ends_with('/')) {
    path.remove_suffix(1);
  }
  if (authority.find_first_of("@?# \r\n") != std::string_view::npos ||
      path.find_first_of("?# \r\n") != std::string_view::npos) {
    return wrong("has a user, a query or white space");
  }
  target.host_header = authority;
  target.base_path = path;
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : std::string_view::npos;
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    const std::string_view digits = authority.substr(colon + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), target.port);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || target.port == 0) {
      return wrong("its port is not a number from 1 to 65535");
    }
  }
  target.host = authority.substr(0, colon);
  if (bracket != std::string_view::npos) {
    target.host = authority.substr(1, bracket - 1);
  }
  if (target.host.empty()) {
    return wrong("has no host");
  }
  return target;
}

std::string request_path(const Target& target, std::string_view endpoint) {
  const std::string_view versioned = "/v1";
  if (target.base_path.ends_with(versioned) && endpoint.starts_with("/v1/")) {
    endpoint.remove_prefix(versioned.size());
  }
  return target.base_path + std::string(endpoint);
}

Result<Address> resolve(const Target& target) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (failed != 0 || found == nullptr) {
    return Error(Code::kUnavailable, fmt::format("cannot find the host '{}' of --url: {}",
                                                 target.host, ::gai_strerror(failed)));
  }
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Address& address = addresses.emplace_back();
    address.length = each->ai_addrlen;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return choose_address(addresses);
}

Address choose_address(std::span<const Address> addresses) {
  if (addresses.size() > 1) {
    const auto found = std::ranges::find_if(addresses, takes_connections);
    if (found != addresses.end()) {
      return *found;
    }
  }
  return addresses.front();
}

}  // namespace stator::loadgen
