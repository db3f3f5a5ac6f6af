// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/net/grpc_call.h"
#include "stator/net/http_server.h"

namespace stator::net {

/// Whether a request is a gRPC call, by its content type.
bool is_grpc(const HttpRequest& request);

/// What the client is ready to wait (grpc-timeout); nothing: any time.
std::optional<Duration> grpc_timeout(const HttpRequest& request);

/// The status of a call whose answer over HTTP would have been `http_status` (an error's).
int grpc_status_of(int http_status);

/// A gRPC call over an exchange of the HTTP server, whose body comes in pieces
/// (BodyRule::in_pieces): messages in, messages out, a status in the trailers.
///
///   on_body(bytes): while (auto message = call.next(bytes)) …; if (call.trouble()) call.finish(…)
///
/// On the exchange's loop. The exchange outlives it, or its last use.
class GrpcExchange {
 public:
  GrpcExchange(HttpExchange& exchange, size_t message_bytes_max);
  GrpcExchange(const GrpcExchange&) = delete;
  GrpcExchange& operator=(const GrpcExchange&) = delete;
  ~GrpcExchange();

  /// The next message, taken off the front of `bytes`; nothing when all of them are taken or there
  /// is trouble(). Valid until the next call, and only as long as the bytes are.
  std::optional<std::string_view> next(std::string_view& bytes);
  /// A message that is compressed or too long: how the call has to end.
  const std::optional<GrpcOutcome>& trouble() const;
  /// Of a message whose end has not come.
  size_t unfinished_bytes() const;

  void send(std::string_view message);
  /// Ends the exchange.
  void finish(const GrpcOutcome& outcome);
  /// The same for errors by HTTP status.
  void fail(int http_status, std::string_view message) {
    finish({grpc_status_of(http_status), std::string(message)});
  }

 private:
  struct State;
  void start();

  HttpExchange& exchange_;
  std::unique_ptr<State> state_;
};

}  // namespace stator::net
