// SPDX-License-Identifier: Apache-2.0
#include "stator/services/event_feed.h"

#include <fmt/format.h>

#include <charconv>

#include "stator/net/loopback.h"

namespace stator::services {
namespace {

bool is_port(std::string_view text) {
  uint32_t port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failed == std::errc() && end == text.data() + text.size() && port > 0 && port <= 65535;
}

}  // namespace

Status check_reachable(std::string_view url) {
  const size_t scheme = url.find("://");
  std::string_view host = url.substr(scheme == std::string_view::npos ? 0 : scheme + 3);
  host = host.substr(0, host.find_first_of("/?#"));
  const size_t user = host.rfind('@');
  host.remove_prefix(user == std::string_view::npos ? 0 : user + 1);
  // Of "[fe80::1]:5557" and "host:5557" what stands before the port.
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && (host.front() != '[' || host[colon - 1] == ']')) {
    host = host.substr(0, colon);
  }
  if (net::is_link_local_host(host)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("'{}' is a link-local address: no engine or peer is reached there", url));
  }
  return {};
}

Status check_endpoint(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  for (const std::string_view scheme : {"ipc://", "inproc://"}) {
    if (endpoint.starts_with(scheme) && endpoint.size() > scheme.size()) {
      return {};
    }
  }
  if (endpoint.starts_with(kTcp)) {
    const size_t colon = endpoint.rfind(':');
    if (colon > kTcp.size() && is_port(endpoint.substr(colon + 1))) {
      return check_reachable(endpoint);
    }
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("endpoint '{}' is not tcp://host:port, ipc://path or inproc://name", endpoint));
}

}  // namespace stator::services
