// SPDX-License-Identifier: Apache-2.0
#include "stator/services/event_feed.h"

#include <fmt/format.h>

#include <charconv>

namespace stator::services {
namespace {

bool is_port(std::string_view text) {
  uint32_t port = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failed == std::errc() && end == text.data() + text.size() && port > 0 && port <= 65535;
}

}  // namespace

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
      return {};
    }
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("endpoint '{}' is not tcp://host:port, ipc://path or inproc://name", endpoint));
}

}  // namespace stator::services
