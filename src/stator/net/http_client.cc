// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_client.h"

#include "stator/net/detail/curl_request.h"
#include "stator/net/detail/trim.h"

#include <curl/curl.h>

#include <algorithm>

namespace stator::net {
namespace {

// Headers kept of one response.
constexpr size_t kHeaderBytesMax = 256 * 1024;

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
    transfer.response.headers.emplace_back(std::move(name), detail::trim(line.substr(colon + 1)));
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

Error transfer_error(CURLcode outcome, const Transfer& transfer, const HttpClientRequest& request,
                     const char* detail) {
  if (transfer.cancelled) {
    return {Code::kCancelled, request.method + " " + request.url + ": stopped by its reader"};
  }
  if (transfer.too_large) {
    return {Code::kTooLarge, request.method + " " + request.url +
                                 ": the response is larger than the limit of " +
                                 std::to_string(transfer.body_bytes_max) + " bytes"};
  }
  return detail::to_error(outcome, request, detail);
}

}  // namespace

std::optional<std::string_view> HttpClientResponse::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &HttpHeaderList::value_type::first);
  if (found == headers.end()) {
    return std::nullopt;
  }
  return found->second;
}

Result<HttpClientResponse> detail::perform(const CurlRequest& prepared,
                                           const HttpClientRequest& request,
                                           const HttpClientOptions& options,
                                           const OnChunk& on_chunk) {
  CURL* handle = prepared.handle.get();
  Transfer transfer{.response = {}, .on_chunk = on_chunk, .body_bytes_max = options.body_bytes_max};
  char detail[CURL_ERROR_SIZE] = "";
  detail::set(handle, CURLOPT_ERRORBUFFER, static_cast<char*>(detail));
  detail::set(handle, CURLOPT_HEADERFUNCTION, &on_header_line);
  detail::set(handle, CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  detail::set(handle, CURLOPT_WRITEFUNCTION, &on_body);
  detail::set(handle, CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  const CURLcode outcome = curl_easy_perform(handle);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  if (outcome != CURLE_OK) {
    return transfer_error(outcome, transfer, request, detail);
  }
  transfer.response.status = static_cast<int>(status);
  return std::move(transfer.response);
}

Result<HttpClientResponse> http_request(const HttpClientRequest& request,
                                        const HttpClientOptions& options, const OnChunk& on_chunk) {
  STATOR_TRY(const detail::CurlRequest prepared, detail::make_curl_request(request, options));
  return detail::perform(prepared, request, options, on_chunk);
}

struct HttpClient::State {
  detail::CurlRequest prepared{.headers = {}, .handle = detail::make_handle()};
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {}
HttpClient::~HttpClient() = default;

Result<HttpClientResponse> HttpClient::request(const HttpClientRequest& request,
                                               const HttpClientOptions& options,
                                               const OnChunk& on_chunk) {
  detail::CurlRequest& prepared = state_->prepared;
  STATOR_TRY(prepared.headers, detail::prepare(prepared.handle.get(), request, options));
  auto answer = detail::perform(prepared, request, options, on_chunk);
  curl_easy_reset(prepared.handle.get());  // it points to what ends here
  return answer;
}

}  // namespace stator::net
