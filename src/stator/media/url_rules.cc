// SPDX-License-Identifier: Apache-2.0
#include "stator/media/url_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace stator::media {
namespace {

constexpr size_t kUrlBytesMax = 8192;
constexpr size_t kHostBytesMax = 253;
constexpr size_t kShownBytes = 128;

constexpr std::array<std::string_view, 9> kBlockedHosts = {
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "kubernetes.default",
    "kubernetes.default.svc",
};
constexpr std::array<std::string_view, 4> kBlockedEnds = {".localhost", ".local", ".internal",
                                                          ".cluster.local"};

Error refuse(std::string_view why) {
  return {Code::kInvalidArgument, std::string(why)};
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

bool is_url_byte(char c) {
  return c > 0x20 && c < 0x7F && c != '\\' && c != '"' && c != '<' && c != '>' && c != '^' &&
         c != '`' && c != '{' && c != '|' && c != '}';
}

bool is_host_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

/// Whether resolvers may take it for an address: its last label is a number, decimal, octal or
/// hexadecimal (https://url.spec.whatwg.org/#ends-in-a-number-checker).
bool ends_in_number(std::string_view host) {
  const std::string_view label = host.substr(host.rfind('.') + 1);
  const auto all = [](std::string_view text, auto digit) {
    return !text.empty() && std::ranges::all_of(text, digit);
  };
  const auto decimal = [](char c) { return c >= '0' && c <= '9'; };
  if (all(label, decimal)) {
    return true;
  }
  return label.starts_with("0x") && (label.size() == 2 || all(label.substr(2), [&](char c) {
                                       return decimal(c) || (c >= 'a' && c <= 'f');
                                     }));
}

Status read_host(std::string_view text, FetchUrl& url) {
  if (text.starts_with('[')) {
    if (!text.ends_with(']')) {
      return refuse("the URL's host is no address");
    }
    url.host = to_lower(text.substr(1, text.size() - 2));
    url.address = parse_address(url.host);
    return url.address && url.address->length == 16 ? Status()
                                                    : refuse("the URL's host is no IPv6 address");
  }
  url.host = to_lower(text);
  if (url.host.ends_with('.')) {
    url.host.pop_back();
  }
  if (url.host.empty() || url.host.size() > kHostBytesMax ||
      !std::ranges::all_of(url.host, is_host_byte) || url.host.contains("..") ||
      url.host.starts_with('.') || url.host.ends_with('.')) {
    return refuse("the URL's host is no name of letters, digits, hyphens and dots");
  }
  if (ends_in_number(url.host)) {
    url.address = parse_address(url.host);
    if (!url.address) {
      return refuse(
          "the URL's host is an address in an unusual spelling: write it as four numbers");
    }
  }
  return {};
}

std::optional<uint16_t> read_port(std::string_view text) {
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && at == end && port > 0 ? std::optional(port) : std::nullopt;
}

/// host[:port] of a URL or of a list's entry.
Status read_authority(std::string_view text, FetchUrl& url, std::optional<uint16_t>& port) {
  const size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    port = read_port(text.substr(colon + 1));
    if (!port) {
      return refuse("the URL's port is no number from 1 to 65535");
    }
  }
  return read_host(text.substr(0, colon), url);
}

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (item.starts_with(' ')) {
      item.remove_prefix(1);
    }
    while (item.ends_with(' ')) {
      item.remove_suffix(1);
    }
    if (!item.empty()) {
      out.push_back(item);
    }
  }
  return out;
}

std::string shown(std::string_view host) {
  return std::string(host.substr(0, kShownBytes));
}

}  // namespace

Result<UrlRules> UrlRules::create(const MediaConfig& config) {
  UrlRules rules;
  rules.allow_private_ = config.allow_private;
  for (std::string_view item : split(config.allowed_hosts)) {
    const std::string_view whole = item;
    Entry entry;
    if (item.starts_with("*.")) {
      entry.below = true;
      item.remove_prefix(2);
    }
    FetchUrl read;
    if (Status good = read_authority(item, read, entry.port); !good) {
      return Error(Code::kInvalidArgument,
                   fmt::format("media.allowed_hosts has '{}', which is no host: write "
                               "images.example, *.cdn.example or files.example:8443",
                               whole.substr(0, kShownBytes)));
    }
    entry.host = std::move(read.host);
    rules.allowed_.push_back(std::move(entry));
  }
  return rules;
}

const UrlRules::Entry* UrlRules::find_entry(const FetchUrl& url) const {
  const uint16_t usual = url.tls ? 443 : 80;
  const auto found = std::ranges::find_if(allowed_, [&](const Entry& entry) {
    if (entry.port.value_or(usual) != url.port) {
      return false;
    }
    return entry.below ? url.host.ends_with("." + entry.host) : url.host == entry.host;
  });
  return found == allowed_.end() ? nullptr : &*found;
}

Status UrlRules::check_host(const FetchUrl& url, bool port_given) const {
  if (!allowed_.empty()) {
    // The operator named it, port and all.
    return find_entry(url) != nullptr
               ? Status()
               : refuse(fmt::format("media from '{}' may not be fetched here (media.allowed_hosts)",
                                    shown(url.host)));
  }
  if (allow_private_) {
    return {};
  }
  if (port_given) {
    return refuse(fmt::format(
        "media from port {} may not be fetched here (media.allowed_hosts, media.allow_private)",
        url.port));
  }
  const bool blocked = std::ranges::find(kBlockedHosts, url.host) != kBlockedHosts.end() ||
                       std::ranges::any_of(kBlockedEnds, [&](std::string_view end) {
                         return url.host.ends_with(end);
                       });
  if (blocked || url.address) {
    return refuse(fmt::format(
        "media from '{}' may not be fetched here (media.allowed_hosts, media.allow_private)",
        shown(url.host)));
  }
  return {};
}

Result<FetchUrl> UrlRules::check(std::string_view text) const {
  if (text.size() > kUrlBytesMax) {
    return refuse(fmt::format("the URL has more than {} bytes", kUrlBytesMax));
  }
  if (!std::ranges::all_of(text, is_url_byte)) {
    return refuse("the URL has characters that need escapes");
  }
  FetchUrl url;
  const size_t scheme_end = text.find("://");
  const std::string scheme = to_lower(text.substr(0, std::min(scheme_end, text.size())));
  if (scheme_end == std::string_view::npos || (scheme != "http" && scheme != "https")) {
    return refuse("must be a data:, https: or http: URL");
  }
  url.tls = scheme == "https";
  text.remove_prefix(scheme_end + 3);
  const size_t authority_end = std::min(text.find_first_of("/?#"), text.size());
  const std::string_view authority = text.substr(0, authority_end);
  if (authority.contains('@')) {
    return refuse("the URL names a user: leave that out");
  }
  std::optional<uint16_t> port;
  STATOR_CHECK(read_authority(authority, url, port));
  const uint16_t usual = url.tls ? 443 : 80;
  url.port = port.value_or(usual);
  STATOR_CHECK(check_host(url, url.port != usual));
  std::string_view target = text.substr(authority_end);
  target = target.substr(0, target.find('#'));
  const bool brackets = url.address && url.address->length == 16;
  url.text = fmt::format("{}://{}{}{}:{}{}{}", scheme, brackets ? "[" : "", url.host,
                         brackets ? "]" : "", url.port, target.starts_with('/') ? "" : "/", target);
  return url;
}

Result<FetchUrl> UrlRules::check_redirect(const FetchUrl& from, std::string_view location) const {
  std::string absolute;
  const std::string_view scheme = from.tls ? "https" : "http";
  const size_t authority_end = from.text.find('/', scheme.size() + 3);
  if (location.starts_with("//")) {
    absolute = fmt::format("{}:{}", scheme, location);
  } else if (location.starts_with('/')) {
    absolute = from.text.substr(0, authority_end) + std::string(location);
  } else if (location.contains("://")) {
    absolute = location;
  } else {
    const std::string_view path(from.text.data(),
                                from.text.find_first_of("?", authority_end) == std::string::npos
                                    ? from.text.size()
                                    : from.text.find('?', authority_end));
    absolute = std::string(path.substr(0, path.rfind('/') + 1)) + std::string(location);
  }
  STATOR_TRY(FetchUrl url, check(absolute));
  if (from.tls && !url.tls) {
    return refuse("the URL leads from https to http");
  }
  return url;
}

Status UrlRules::check_address(const FetchUrl& url, const IpAddress& address) const {
  if (allow_private_) {
    return {};
  }
  if (const std::string_view why = why_refused(address); !why.empty()) {
    // The address itself is not told: clients are not to map the network with it.
    return refuse(
        fmt::format("'{}' has an address that media may not be fetched from ({}): "
                    "media.allow_private",
                    shown(url.host), why));
  }
  return {};
}

}  // namespace stator::media
