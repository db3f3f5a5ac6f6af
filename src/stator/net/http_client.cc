// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace stator::net {
namespace {

constexpr long kRedirectsMax = 10;
// Headers kept of one response.
constexpr size_t kHeaderBytesMax = 256 * 1024;

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(char* text) const { curl_free(text); }
};
using Handle = std::unique_ptr<CURL, CurlDeleter>;
using HeaderLines = std::unique_ptr<curl_slist, CurlDeleter>;

/// What the callbacks of one transfer fill in. Callbacks return less than they got to abort.
struct Transfer {
  HttpClientResponse response;
  const OnChunk& on_chunk;
  const size_t body_bytes_max;
  size_t header_bytes = 0;
  bool cancelled = false;
  bool too_large = false;
};

void lower(std::string& text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  });
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

size_t on_header_line(const char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    transfer.response.headers.clear();  // a redirect's or an interim response's
    transfer.header_bytes = 0;
  }
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > kHeaderBytesMax) {
    transfer.too_large = true;
    return 0;
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos && !line.starts_with("HTTP/")) {
    std::string name(line.substr(0, colon));
    lower(name);
    transfer.response.headers.emplace_back(std::move(name), trim(line.substr(colon + 1)));
  }
  return line.size();
}

size_t on_body(const char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view bytes(data, size * count);
  if (transfer.on_chunk) {
    transfer.cancelled = !transfer.on_chunk(bytes);
    return transfer.cancelled ? 0 : bytes.size();
  }
  if (transfer.response.body.size() + bytes.size() > transfer.body_bytes_max) {
    transfer.too_large = true;
    return 0;
  }
  transfer.response.body += bytes;
  return bytes.size();
}

template <typename Value>
void set(const Handle& handle, CURLoption option, Value value) {
  // Only an option unknown to this libcurl fails, and Debian 12's knows them all.
  static_cast<void>(curl_easy_setopt(handle.get(), option, value));
}

long milliseconds(Duration time) {
  return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

bool is_loopback(const std::string& url) {
  const std::unique_ptr<CURLU, CurlDeleter> parsed(curl_url());
  char* host = nullptr;
  if (parsed == nullptr || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK) {
    return false;
  }
  const std::unique_ptr<char, CurlDeleter> owned(host);
  const std::string_view name(host);
  return name == "localhost" || name == "[::1]" || name.starts_with("127.");
}

void set_method_and_body(const Handle& handle, const HttpClientRequest& request) {
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

void set_options(const Handle& handle, const HttpClientOptions& options) {
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
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

Error transfer_error(CURLcode outcome, const Transfer& transfer, const HttpClientRequest& request,
                     const char* detail) {
  const std::string text = request.method + " " + request.url + ": " +
                           (*detail != '\0' ? detail : curl_easy_strerror(outcome));
  if (transfer.cancelled) {
    return {Code::kCancelled, request.method + " " + request.url + ": stopped by its reader"};
  }
  if (transfer.too_large) {
    return {Code::kTooLarge, request.method + " " + request.url +
                                 ": the response is larger than the limit of " +
                                 std::to_string(transfer.body_bytes_max) + " bytes"};
  }
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

bool has_line_break(const HttpClientRequest& request) {
  const auto breaks = [](const std::string& text) {
    return text.find_first_of("\r\n") != std::string::npos;
  };
  return breaks(request.method) || std::ranges::any_of(request.headers, [&](const auto& header) {
           return breaks(header.first) || breaks(header.second);
         });
}

}  // namespace

std::optional<std::string_view> HttpClientResponse::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &HttpHeaderList::value_type::first);
  if (found == headers.end()) {
    return std::nullopt;
  }
  return found->second;
}

Result<HttpClientResponse> http_request(const HttpClientRequest& request,
                                        const HttpClientOptions& options, const OnChunk& on_chunk) {
  // Thread-safe since libcurl 7.84; never undone, as libcurl advises for libraries.
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (has_line_break(request)) {
    return Error(Code::kInvalidArgument,
                 "a header or the method of a request to " + request.url + " has a line break");
  }
  const Handle handle(curl_easy_init());
  if (global != CURLE_OK || handle == nullptr) {
    return Error(Code::kInternal, "libcurl does not start");
  }
  Transfer transfer{.response = {}, .on_chunk = on_chunk, .body_bytes_max = options.body_bytes_max};
  const HeaderLines lines = make_header_lines(request.headers);
  char detail[CURL_ERROR_SIZE] = "";
  set_options(handle, options);
  set_method_and_body(handle, request);
  if (is_loopback(request.url)) {
    set(handle, CURLOPT_PROXY, "");
  }
  set(handle, CURLOPT_URL, request.url.c_str());
  set(handle, CURLOPT_HTTPHEADER, lines.get());
  set(handle, CURLOPT_ERRORBUFFER, static_cast<char*>(detail));
  set(handle, CURLOPT_HEADERFUNCTION, &on_header_line);
  set(handle, CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(handle, CURLOPT_WRITEFUNCTION, &on_body);
  set(handle, CURLOPT_WRITEDATA, static_cast<void*>(&transfer));

  const CURLcode outcome = curl_easy_perform(handle.get());
  if (outcome != CURLE_OK) {
    return transfer_error(outcome, transfer, request, detail);
  }
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  transfer.response.status = static_cast<int>(status);
  return std::move(transfer.response);
}

}  // namespace stator::net
