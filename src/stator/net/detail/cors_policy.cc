// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/cors_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "stator/net/detail/trim.h"

namespace stator::net::detail {
namespace {

constexpr std::string_view kAny = "*";
// What handlers are asked by; a browser sends no other methods then.
constexpr std::string_view kMethods = "GET, HEAD, POST";
// What answers carry beyond what a page may read anyway.
constexpr std::string_view kExposed = "x-request-id, x-stator-ignored-fields, retry-after";
// Ten minutes, as other servers say; browsers keep the answer for two hours at most.
constexpr std::string_view kMaxAge = "600";
// An SDK names about ten headers. More than this is no browser, and not repeated.
constexpr size_t kAskedHeadersBytesMax = 2048;
// Caches must not give the answer for one origin to another.
constexpr std::string_view kVary = "vary: Origin\r\n";

/// As browsers write it: scheme and host in lower case, no path. Nothing if it is no origin.
std::optional<std::string> normalize(std::string_view text) {
  std::string origin;
  for (const char c : text) {
    if (c <= ' ' || c > '~') {
      return std::nullopt;
    }
    origin += 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (origin == kAny || origin == "null") {
    return origin;
  }
  const size_t scheme_end = origin.find("://");
  if (scheme_end == 0 || scheme_end == std::string::npos) {
    return std::nullopt;
  }
  const std::string_view host = std::string_view(origin).substr(scheme_end + 3);
  if (host.empty() || host.find_first_of("/?#@*\"") != std::string_view::npos) {
    return std::nullopt;
  }
  return origin;
}

}  // namespace

Result<CorsPolicy> CorsPolicy::parse(std::string_view origins) {
  CorsPolicy policy;
  while (!origins.empty()) {
    const size_t comma = std::min(origins.find(','), origins.size());
    const std::string_view entry = trim(origins.substr(0, comma));
    origins.remove_prefix(std::min(comma + 1, origins.size()));
    if (entry.empty()) {
      continue;
    }
    auto origin = normalize(entry);
    if (!origin) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("http.cors_origins: '{}' is not an origin: give scheme://host[:port] "
                      "without a path, several with commas, or *",
                      entry));
    }
    std::string lines =
        fmt::format("access-control-allow-origin: {}\r\naccess-control-expose-headers: {}\r\n{}",
                    *origin, kExposed, kVary);
    policy.allowed_.push_back({std::move(*origin), std::move(lines)});
  }
  return policy;
}

const CorsPolicy::Allowed* CorsPolicy::find(const HttpRequest& request) const {
  if (allowed_.empty()) {
    return nullptr;
  }
  const auto origin = request.header("origin");
  if (!origin) {
    return nullptr;
  }
  const auto found = std::ranges::find_if(allowed_, [&](const Allowed& allowed) {
    return allowed.origin == kAny || allowed.origin == *origin;
  });
  return found == allowed_.end() ? nullptr : &*found;
}

std::string_view CorsPolicy::lines_for(const HttpRequest& request) const {
  const Allowed* allowed = find(request);
  if (allowed != nullptr) {
    return allowed->lines;
  }
  return allowed_.empty() ? std::string_view() : kVary;
}

bool CorsPolicy::is_preflight(const HttpRequest& request) const {
  return request.method() == "OPTIONS" && request.header("access-control-request-method") &&
         find(request) != nullptr;
}

std::vector<HttpHeader> make_preflight_headers(const HttpRequest& request) {
  std::vector<HttpHeader> headers = {{"access-control-allow-methods", kMethods},
                                     {"access-control-max-age", kMaxAge}};
  const auto asked = request.header("access-control-request-headers");
  if (asked && asked->size() <= kAskedHeadersBytesMax) {
    headers.push_back({"access-control-allow-headers", *asked});
  }
  return headers;
}

}  // namespace stator::net::detail
