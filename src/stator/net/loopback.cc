// SPDX-License-Identifier: Apache-2.0
#include "stator/net/loopback.h"

#include <arpa/inet.h>
#include <curl/curl.h>

#include <memory>

#include "stator/net/detail/curl_request.h"

namespace stator::net {

namespace {

std::string_view without_brackets(std::string_view host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  host = without_brackets(host);
  if (host == "localhost") {
    return true;
  }
  const std::string text(host);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) {
    return (ntohl(four.s_addr) >> 24) == 127;
  }
  in6_addr six{};
  if (::inet_pton(AF_INET6, text.c_str(), &six) != 1) {
    return false;
  }
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

bool is_link_local_host(std::string_view host) {
  const std::string text(without_brackets(host));
  const auto is_metadata = [](uint32_t address) { return (address >> 16) == 0xA9FE; };
  in_addr four{};
  // inet_aton as resolvers do: "0xa9fea9fe" and "2852039166" are addresses to them.
  if (::inet_aton(text.c_str(), &four) == 1) {
    return is_metadata(ntohl(four.s_addr));
  }
  in6_addr six{};
  if (::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &six) != 1) {
    return false;
  }
  return IN6_IS_ADDR_LINKLOCAL(&six) ||
         (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 169 && six.s6_addr[13] == 254);
}

std::string host_in_url(std::string_view host) {
  const bool bare = host.contains(':') && !host.starts_with('[');
  return bare ? "[" + std::string(host) + "]" : std::string(host);
}

bool is_loopback_url(const std::string& url) {
  const std::unique_ptr<CURLU, detail::CurlDeleter> parsed(curl_url());
  char* host = nullptr;
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK) {
    return false;
  }
  const std::unique_ptr<char, detail::CurlDeleter> owned(host);
  return is_loopback_host(host);
}

}  // namespace stator::net
