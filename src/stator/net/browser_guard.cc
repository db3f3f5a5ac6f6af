// SPDX-License-Identifier: Apache-2.0
#include "stator/net/browser_guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <string>

#include "stator/net/detail/cors_policy.h"
#include "stator/net/detail/trim.h"

namespace stator::net {
namespace {

// Of what a client sent, repeated in a message.
constexpr size_t kShownBytesMax = 100;

bool equal(std::string_view a, std::string_view b) {
  return boost::beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

bool is_address(int family, std::string_view text) {
  in6_addr parsed = {};
  return ::inet_pton(family, std::string(text).c_str(), &parsed) == 1;
}

/// "name:port", "[::1]:port" and the same without a port.
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) {
    return host.substr(0, std::min(host.find(']'), host.size() - 1) + 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_known(std::string_view host_and_port, std::string_view allowed_hosts) {
  const std::string_view host = without_port(host_and_port);
  if (host.starts_with('[') && host.ends_with(']')) {
    return is_address(AF_INET6, host.substr(1, host.size() - 2));
  }
  if (equal(host, "localhost") || is_address(AF_INET, host)) {
    return true;
  }
  while (!allowed_hosts.empty()) {
    const size_t comma = std::min(allowed_hosts.find(','), allowed_hosts.size());
    const std::string_view name = detail::trim(allowed_hosts.substr(0, comma));
    if (!name.empty() && equal(name, host)) {
      return true;
    }
    allowed_hosts.remove_prefix(std::min(comma + 1, allowed_hosts.size()));
  }
  return false;
}

}  // namespace

Status check_may_change(const HttpRequest& request, const BrowserRules& rules) {
  const auto origin = request.header("origin");
  if (!origin) {
    return {};
  }
  STATOR_TRY(const auto cors, detail::CorsPolicy::parse(rules.cors_origins));
  if (cors.allows(request)) {
    return {};
  }
  const std::string_view host = request.header("host").value_or("");
  const size_t scheme_end = origin->find("://");
  if (scheme_end != std::string_view::npos && equal(origin->substr(scheme_end + 3), host) &&
      is_known(host, rules.allowed_hosts)) {
    return {};
  }
  return Error(Code::kPermissionDenied,
               fmt::format("a page of {} may not change anything here: if it is yours, list it in "
                           "http.cors_origins, or this server's name in http.allowed_hosts (of an "
                           "operators' port: system.allowed_hosts)",
                           origin->substr(0, kShownBytesMax)));
}

Status check_host(const HttpRequest& request, std::string_view allowed_hosts) {
  const std::string_view host = request.header("host").value_or("");
  if (host.empty() || is_known(host, allowed_hosts)) {
    return {};
  }
  return Error(Code::kPermissionDenied,
               fmt::format("'{}' is no name of this server: ask localhost or its address, or list "
                           "the name in system.allowed_hosts",
                           host.substr(0, kShownBytesMax)));
}

}  // namespace stator::net
