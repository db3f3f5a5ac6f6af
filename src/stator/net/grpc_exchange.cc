// SPDX-License-Identifier: Apache-2.0
#include "stator/net/grpc_exchange.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "stator/net/detail/grpc_codec.h"
#include "stator/net/detail/output_buffer.h"

namespace stator::net {

using detail::kGrpcContentType;

struct GrpcExchange::State {
  explicit State(size_t message_bytes_max) : incoming(message_bytes_max) {}
  detail::GrpcMessageReader incoming;
  detail::OutputBuffer framed;  // of one message
  bool started = false;
};

bool is_grpc(const HttpRequest& request) {
  return request.header("content-type").value_or("").starts_with(kGrpcContentType);
}

std::optional<Duration> grpc_timeout(const HttpRequest& request) {
  const auto header = request.header("grpc-timeout");
  return header ? detail::parse_grpc_timeout(*header) : std::nullopt;
}

int grpc_status_of(int http_status) {
  // google.rpc.Code names the HTTP status of each.
  constexpr std::array<std::pair<int, int>, 13> kKnown = {{{400, 3},
                                                           {401, 16},
                                                           {403, 7},
                                                           {404, 5},
                                                           {408, 4},
                                                           {409, 10},
                                                           {413, 3},
                                                           {415, 3},
                                                           {429, 8},
                                                           {499, 1},
                                                           {501, 12},
                                                           {503, 14},
                                                           {504, 4}}};
  constexpr int kInternal = 13;
  for (const auto& [http, grpc] : kKnown) {
    if (http == http_status) {
      return grpc;
    }
  }
  return http_status >= 400 && http_status < 500 ? 3 : kInternal;
}

GrpcExchange::GrpcExchange(HttpExchange& exchange, size_t message_bytes_max)
    : exchange_(exchange), state_(std::make_unique<State>(message_bytes_max)) {}
GrpcExchange::~GrpcExchange() = default;

std::optional<std::string_view> GrpcExchange::next(std::string_view& bytes) {
  return state_->incoming.next(bytes);
}

const std::optional<GrpcOutcome>& GrpcExchange::trouble() const {
  return state_->incoming.trouble();
}

size_t GrpcExchange::unfinished_bytes() const {
  return state_->incoming.unfinished_bytes();
}

void GrpcExchange::start() {
  if (!std::exchange(state_->started, true)) {
    exchange_.start_stream(200, kGrpcContentType);
  }
}

void GrpcExchange::send(std::string_view message) {
  start();
  detail::append_grpc_message(state_->framed, message);
  exchange_.write(state_->framed.front());
  state_->framed.clear();
}

void GrpcExchange::finish(const GrpcOutcome& outcome) {
  start();
  const std::string status = fmt::to_string(outcome.status);
  const std::string text = detail::percent_encoded(
      std::string_view(outcome.message).substr(0, detail::kGrpcTextBytesMax));
  const std::array<HttpHeader, 2> trailers = {HttpHeader{"grpc-status", status},
                                              HttpHeader{"grpc-message", text}};
  exchange_.finish_with(std::span(trailers).first(text.empty() ? 1 : 2));
}

}  // namespace stator::net
