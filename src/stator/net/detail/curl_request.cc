// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/curl_request.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "stator/net/loopback.h"

namespace stator::net::detail {
namespace {

constexpr long kRedirectsMax = 10;

long milliseconds(Duration time) {
  return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

void set_method_and_body(CURL* handle, const HttpClientRequest& request) {
  if (request.method == "HEAD") {
    set(handle, CURLOPT_NOBODY, 1L);
    return;
  }
  if (!request.body.empty() || request.method == "POST") {
    set(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  }
  set(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

void set_options(CURL* handle, const HttpClientOptions& options) {
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_HTTP_VERSION,
      static_cast<long>(options.http2 ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE
                                      : CURL_HTTP_VERSION_1_1));
  set(handle, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(options.connect_timeout));
  set(handle, CURLOPT_TIMEOUT_MS, milliseconds(options.timeout));
  if (options.stall_timeout > Duration::zero()) {
    const auto stall = std::chrono::ceil<std::chrono::seconds>(options.stall_timeout);
    set(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall.count()));
  }
  if (options.resume_from > 0) {
    const std::string range = std::to_string(options.resume_from) + "-";
    set(handle, CURLOPT_RANGE, range.c_str());  // libcurl copies it
  }
  set(handle, CURLOPT_FOLLOWLOCATION, options.follow_redirects ? 1L : 0L);
  set(handle, CURLOPT_MAXREDIRS, kRedirectsMax);
  if (!options.tls_ca_path.empty()) {
    set(handle, CURLOPT_CAINFO, options.tls_ca_path.c_str());
  }
  set(handle, CURLOPT_SSL_VERIFYPEER, options.tls_insecure ? 0L : 1L);
  set(handle, CURLOPT_SSL_VERIFYHOST, options.tls_insecure ? 0L : 2L);
}

/// Connects to pinned addresses only, whatever libcurl has looked up or remembers.
curl_socket_t open_pinned(void* user, curlsocktype purpose, curl_sockaddr* address) {
  const auto& pinned = *static_cast<const std::vector<std::string>*>(user);
  std::array<char, INET6_ADDRSTRLEN> text{};
  const sockaddr* to = &address->addr;
  const void* bytes =
      to->sa_family == AF_INET
          ? static_cast<const void*>(
                &static_cast<const sockaddr_in*>(static_cast<const void*>(to))->sin_addr)
          : &static_cast<const sockaddr_in6*>(static_cast<const void*>(to))->sin6_addr;
  if (purpose != CURLSOCKTYPE_IPCXN || (to->sa_family != AF_INET && to->sa_family != AF_INET6) ||
      inet_ntop(to->sa_family, bytes, text.data(), text.size()) == nullptr ||
      std::ranges::find(pinned, std::string_view(text.data())) == pinned.end()) {
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/// "+host:port:address,address", libcurl's spelling of what a name means; empty for a bad URL.
HeaderLines make_pins(const std::string& url, const std::vector<std::string>& addresses) {
  const std::unique_ptr<CURLU, CurlDeleter> parsed(curl_url());
  char* host = nullptr;
  char* port = nullptr;
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK) {
    curl_free(host);
    return {};
  }
  std::string line = std::string("+") + host + ":" + port + ":";
  curl_free(host);
  curl_free(port);
  for (size_t i = 0; i < addresses.size(); ++i) {
    line += i == 0 ? "" : ",";
    line += addresses[i].contains(':') ? "[" + addresses[i] + "]" : addresses[i];
  }
  return HeaderLines(curl_slist_append(nullptr, line.c_str()));
}

HeaderLines make_header_lines(const HttpHeaderList& headers) {
  HeaderLines lines;
  const auto append = [&lines](const std::string& line) {
    curl_slist* longer = curl_slist_append(lines.get(), line.c_str());
    if (longer != nullptr) {
      static_cast<void>(lines.release());
      lines.reset(longer);
    }
  };
  append("Expect:");  // no waiting for 100 Continue
  for (const auto& [name, value] : headers) {
    // libcurl drops "Name:" but sends "Name;" as an empty header.
    append(value.empty() ? name + ";" : name + ": " + value);
  }
  return lines;
}

bool has_line_break(const HttpClientRequest& request) {
  const auto breaks = [](const std::string& text) {
    return text.find_first_of("\r\n") != std::string::npos;
  };
  return breaks(request.method) || std::ranges::any_of(request.headers, [&](const auto& header) {
           return breaks(header.first) || breaks(header.second);
         });
}

}  // namespace

Handle make_handle() {
  // Thread-safe since libcurl 7.84; never undone, as libcurl advises for libraries.
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  return global == CURLE_OK ? Handle(curl_easy_init()) : Handle();
}

Result<HeaderLines> prepare(CURL* handle, const HttpClientRequest& request,
                            const HttpClientOptions& options) {
  if (has_line_break(request)) {
    return Error(Code::kInvalidArgument,
                 "a header or the method of a request to " + request.url + " has a line break");
  }
  if (handle == nullptr) {
    return Error(Code::kInternal, "libcurl does not start");
  }
  curl_easy_reset(handle);
  HeaderLines headers = make_header_lines(request.headers);
  set_options(handle, options);
  set_method_and_body(handle, request);
  if (is_loopback_url(request.url)) {
    set(handle, CURLOPT_PROXY, "");
  }
  set(handle, CURLOPT_URL, request.url.c_str());
  set(handle, CURLOPT_HTTPHEADER, headers.get());
  return headers;
}

Result<CurlRequest> make_curl_request(const HttpClientRequest& request,
                                      const HttpClientOptions& options) {
  CurlRequest made{.headers = {}, .handle = make_handle()};
  STATOR_TRY(made.headers, prepare(made.handle.get(), request, options));
  return made;
}

void pin(CurlRequest& prepared, const std::string& url, const std::vector<std::string>& addresses) {
  prepared.pins = make_pins(url, addresses);
  CURL* handle = prepared.handle.get();
  set(handle, CURLOPT_RESOLVE, prepared.pins.get());
  set(handle, CURLOPT_PROXY, "");
  // Connections are kept by name: one to an address of before would do otherwise.
  set(handle, CURLOPT_FRESH_CONNECT, 1L);
  set(handle, CURLOPT_FORBID_REUSE, 1L);
  set(handle, CURLOPT_OPENSOCKETFUNCTION, &open_pinned);
  // libcurl takes a pointer to what it may change; the callback does not.
  set(handle, CURLOPT_OPENSOCKETDATA, const_cast<std::vector<std::string>*>(&addresses));
}

Error to_error(CURLcode outcome, const HttpClientRequest& request, const char* detail) {
  const std::string text = request.method + " " + request.url + ": " +
                           (*detail != '\0' ? detail : curl_easy_strerror(outcome));
  switch (outcome) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CACERT_BADFILE:
      return {Code::kInvalidArgument, text};
    case CURLE_OPERATION_TIMEDOUT:
      return {Code::kDeadline, text};
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
      return {Code::kUnavailable, text};
    case CURLE_TOO_MANY_REDIRECTS:
      return {Code::kUnsupported, text};
    default:
      return {Code::kDisconnected, text};
  }
}

}  // namespace stator::net::detail
