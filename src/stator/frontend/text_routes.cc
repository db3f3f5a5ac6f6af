// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/text_routes.h"

#include <array>
#include <utility>

#include "stator/frontend/pooling/pool_routes.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {
namespace {

constexpr std::array kTextRoutes = {
    std::pair{std::string_view("/v1/chat/completions"), TextRequest::kChat},
    std::pair{std::string_view("/v1/completions"), TextRequest::kCompletion},
    std::pair{std::string_view("/tokenize"), TextRequest::kTokenize},
    std::pair{std::string_view("/detokenize"), TextRequest::kDetokenize},
};

}  // namespace

std::optional<EndpointLabel> endpoint_of(const TextRoute& route) {
  switch (route.kind) {
    case TextRequest::kChat:
      return Endpoint::kChat;
    case TextRequest::kCompletion:
      return Endpoint::kCompletions;
    case TextRequest::kProtocol:
      return EndpointLabel(route.protocol->endpoint);
    case TextRequest::kPool:
      return EndpointLabel(endpoint_label(route.pool));
    case TextRequest::kTokenize:
    case TextRequest::kDetokenize:
    case TextRequest::kCount:
      break;
  }
  return std::nullopt;
}

std::optional<TextRoute> find_text_route(std::string_view path) {
  for (const auto& [known, kind] : kTextRoutes) {
    if (path == known) {
      return TextRoute{.kind = kind};
    }
  }
  if (const auto pool = find_pool_route(path)) {
    return TextRoute{.kind = TextRequest::kPool, .pool = *pool};
  }
  if (const protocols::Route* route = protocols::find_route(path)) {
    const bool counts = route->operation == protocols::Operation::kCount;
    return TextRoute{.kind = counts ? TextRequest::kCount : TextRequest::kProtocol,
                     .protocol = route->protocol};
  }
  return std::nullopt;
}

std::vector<net::HttpHeader> request_id_headers(const TextRoute& route,
                                                std::string_view request_id) {
  std::vector<net::HttpHeader> headers = {{"x-request-id", request_id}};
  if (route.protocol != nullptr && !route.protocol->request_id_header.empty()) {
    headers.push_back({route.protocol->request_id_header, request_id});
  }
  return headers;
}

}  // namespace stator::frontend
