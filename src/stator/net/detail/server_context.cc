// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/server_context.h"

#include <chrono>
#include <utility>

#include "stator/net/detail/response_head.h"

namespace stator::net::detail {
namespace {

constexpr size_t kReadBufferBytes = 64 * 1024;
constexpr Duration kDateAgeMax = std::chrono::milliseconds(500);

Counter rejected(Metrics& metrics, std::string_view reason) {
  return metrics.counter("stator_http_rejected_total",
                         "Requests and connections refused before a handler saw them.",
                         {{"reason", std::string(reason)}});
}

}  // namespace

ServerMetrics::ServerMetrics(Metrics& metrics)
    : connections_open(metrics.gauge("stator_http_connections_open", "Open HTTP connections.")),
      requests(metrics.counter("stator_http_requests_total", "Requests given to a handler.")),
      bytes_written(
          metrics.counter("stator_http_bytes_written_total", "Response bytes sent, TLS excluded.")),
      clients_gone(metrics.counter("stator_http_client_gone_total",
                                   "Exchanges whose client disconnected before the answer ended.")),
      slow_clients(metrics.counter("stator_http_slow_client_disconnects_total",
                                   "Connections dropped because the client read too slowly.")),
      accept_backoffs(
          metrics.counter("stator_http_accept_backoff_total",
                          "Pauses in accepting after an error, such as too many open files.")),
      rejected_malformed(rejected(metrics, "malformed")),
      rejected_headers(rejected(metrics, "headers_too_large")),
      rejected_body(rejected(metrics, "body_too_large")),
      rejected_timeout(rejected(metrics, "timeout")),
      rejected_connections(rejected(metrics, "connections")),
      rejected_budget(rejected(metrics, "budget")),
      rejected_pipelined(rejected(metrics, "pipelined")),
      rejected_flood(rejected(metrics, "http2_flood")),
      http2_connections(metrics.counter("stator_http2_connections_total",
                                        "Connections whose client chose HTTP/2.")) {}

void ServerMetrics::count_refusal(int status) const {
  switch (status) {
    case 408:
      return rejected_timeout.add();
    case 404:  // by the rule for bodies
    case 405:
    case 413:
      return rejected_body.add();
    case 503:
      return rejected_budget.add();
    case 431:
      return rejected_headers.add();
    default:
      return rejected_malformed.add();
  }
}

ServerContext::ServerContext(Shard& shard_in, HttpServerConfig config_in, HttpHandler& handler_in,
                             Metrics& metrics_in, CorsPolicy cors_in)
    : shard(shard_in),
      config(std::move(config_in)),
      handler(handler_in),
      metrics(metrics_in),
      limits{config.header_bytes_max, config.headers_max, config.body_bytes_max, &handler_in},
      cors(std::move(cors_in)),
      budgets(config.budgets != nullptr ? config.budgets
                                        : std::make_shared<HttpBudgets>(config, metrics_in)),
      read_buffer(kReadBufferBytes) {}

std::string_view ServerContext::date_line() {
  const TimePoint now = shard.now();
  if (date_line_.empty() || now - date_made_at_ > kDateAgeMax) {
    date_line_ = make_date_line(shard.clock().wall_now());
    date_made_at_ = now;
  }
  return date_line_;
}

}  // namespace stator::net::detail
