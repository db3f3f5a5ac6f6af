// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/media/address_rules.h"
#include "stator/media/media_config.h"

namespace stator::media {

/// A URL that may be fetched, as far as its text tells: its addresses are still to be checked.
struct FetchUrl {
  std::string text;  ///< as it is asked for, without fragment and user
  std::string host;  ///< lower case, without brackets
  uint16_t port = 0;
  bool tls = false;
  std::optional<IpAddress> address;  ///< the host, where it is one
};

/// Which URLs clients may make this process fetch. Pure; made once.
class UrlRules {
 public:
  /// kInvalidArgument naming media.allowed_hosts for an entry that is no host.
  static Result<UrlRules> create(const MediaConfig& config);

  /// kInvalidArgument, with words for the client, for a URL that is none, or is refused. Strict
  /// where parsers differ: no backslashes, spaces, users, escapes in hosts, nor other spellings of
  /// addresses than 192.0.2.7 and [2001:db8::7].
  Result<FetchUrl> check(std::string_view url) const;
  /// The same for where a redirect from `from` leads; https never leads to http.
  Result<FetchUrl> check_redirect(const FetchUrl& from, std::string_view location) const;
  /// Every address that a host has must pass before any is connected to.
  Status check_address(const FetchUrl& url, const IpAddress& address) const;

 private:
  struct Entry {
    std::string host;
    bool below = false;  ///< hosts below it, not itself
    std::optional<uint16_t> port;
  };
  const Entry* find_entry(const FetchUrl& url) const;
  Status check_host(const FetchUrl& url, bool port_given) const;

  std::vector<Entry> allowed_;
  bool allow_private_ = false;
};

}  // namespace stator::media
