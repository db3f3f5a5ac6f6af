// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/net/http_client.h"

namespace stator::net::detail {

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(char* text) const { curl_free(text); }
};
using Handle = std::unique_ptr<CURL, CurlDeleter>;
using HeaderLines = std::unique_ptr<curl_slist, CurlDeleter>;

/// One transfer set up as libcurl wants it, without callbacks: what blocking requests and
/// HttpStreams share. The handle points into the request's body, which must outlive the transfer.
struct CurlRequest {
  HeaderLines headers;  // before the handle that uses it: destroyed after it
  HeaderLines pins;     // the same
  Handle handle;
};

/// kInvalidArgument for a line break in a header, kInternal when libcurl does not start.
Result<CurlRequest> make_curl_request(const HttpClientRequest& request,
                                      const HttpClientOptions& options);

/// Lets the transfer connect to these addresses of its URL's host only; they outlive it.
void pin(CurlRequest& prepared, const std::string& url, const std::vector<std::string>& addresses);

/// Runs a prepared transfer to its end, blocking.
Result<HttpClientResponse> perform(const CurlRequest& prepared, const HttpClientRequest& request,
                                   const HttpClientOptions& options, const OnChunk& on_chunk);

/// The same for a handle that was used before: its connections stay. The lines outlive the
/// transfer.
Result<HeaderLines> prepare(CURL* handle, const HttpClientRequest& request,
                            const HttpClientOptions& options);
/// A new handle; null when libcurl does not start.
Handle make_handle();

/// Why a transfer failed, in our words; `detail` is libcurl's error buffer, may be empty.
Error to_error(CURLcode outcome, const HttpClientRequest& request, const char* detail);

template <typename Value>
void set(CURL* handle, CURLoption option, Value value) {
  // Only an option unknown to this libcurl fails, and Debian 12's knows them all.
  static_cast<void>(curl_easy_setopt(handle, option, value));
}

}  // namespace stator::net::detail
