// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_session.h"

#include <curl/curl.h>

#include <utility>

#include "stator/net/detail/curl_request.h"

namespace stator::net {

struct HttpSession::State {
  SessionCredentials credentials;
  const std::atomic<bool>* stop = nullptr;
  CURLSH* share = nullptr;  // open connections, kept from one request to the next
};

namespace {

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(user)->load() ? 1 : 0;
}

}  // namespace

HttpSession::HttpSession(SessionCredentials credentials, const std::atomic<bool>* stop)
    : state_(std::make_unique<State>(State{.credentials = std::move(credentials), .stop = stop})) {
  state_->share = curl_share_init();
  if (state_->share != nullptr) {
    curl_share_setopt(state_->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT);
    curl_share_setopt(state_->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
    curl_share_setopt(state_->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
  }
}

HttpSession::~HttpSession() {
  if (state_->share != nullptr) {
    curl_share_cleanup(state_->share);
  }
}

Result<HttpClientResponse> HttpSession::request(const HttpClientRequest& request,
                                                const HttpClientOptions& options,
                                                const OnChunk& on_chunk) {
  STATOR_TRY(const detail::CurlRequest prepared, detail::make_curl_request(request, options));
  CURL* handle = prepared.handle.get();
  detail::set(handle, CURLOPT_SHARE, state_->share);
  detail::set(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  if (state_->stop != nullptr) {
    detail::set(handle, CURLOPT_NOPROGRESS, 0L);
    detail::set(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
    detail::set(handle, CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(state_->stop));
  }
  const auto set_text = [&](CURLoption option, const std::string& text) {
    if (!text.empty()) {
      curl_blob blob{const_cast<char*>(text.data()), text.size(), CURL_BLOB_COPY};
      detail::set(handle, option, &blob);
    }
  };
  set_text(CURLOPT_CAINFO_BLOB, state_->credentials.ca);
  set_text(CURLOPT_SSLCERT_BLOB, state_->credentials.certificate);
  set_text(CURLOPT_SSLKEY_BLOB, state_->credentials.key);
  return detail::perform(prepared, request, options, on_chunk);
}

}  // namespace stator::net
