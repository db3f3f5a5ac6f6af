// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/http_server.h"

namespace stator::services {

struct ServiceRequest {
  std::string_view method;
  std::string_view path;
  std::string_view query;
  std::string_view body;
  std::string_view id;  ///< what stood for {id} in the path
};

struct ServiceReply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
};

/// {"status":"ok"} with this status.
ServiceReply ok_reply(int status = 200);

/// Value of `name` in a query string, percent-decoded.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

struct ServiceOptions {
  std::string metrics_prefix;  ///< "dynamo_kvindexer"
  bool access_log = false;
  std::string trace_id_header = "x-trace-id";  ///< of requests; sent back and logged
};

/// A small JSON service over HTTP: a table of endpoints, each a plain function that is given the
/// request and returns its answer or an error. One object serves all shards: the functions must be
/// thread-safe and must not block. GET /health and GET /metrics are built in. An error becomes
/// {"error":"…"} with the status of its code (429 for kOverloaded); an unknown path 404, another
/// method on a known one 405. Pages of other origins may only GET (403).
class ServiceApi final : public net::HttpHandler {
 public:
  using Handler = std::function<Result<ServiceReply>(const ServiceRequest&)>;

  ServiceApi(ServiceOptions options, const Clock& clock, Metrics& metrics);

  /// Before the first request. One segment of the pattern may be {id}: "/reservations/{id}".
  void add(std::string_view method, std::string_view pattern, Handler handler);

  void on_request(net::HttpExchange& exchange) override;
  /// The answer alone: what on_request sends.
  ServiceReply answer(const ServiceRequest& request) const;

 private:
  struct Route {
    std::string method;
    std::string before;  // of {id}, or the whole path
    std::string after;
    bool has_id = false;
    Handler handler;
    Counter requests, errors;
    Histogram seconds;

    std::optional<std::string_view> match(std::string_view path) const;
  };
  ServiceReply answer_http(const net::HttpRequest& request) const;
  void log_access(const net::HttpRequest& request, int status, Duration took) const;

  const ServiceOptions options_;
  const Clock& clock_;
  Metrics& metrics_;
  std::vector<Route> routes_;
};

}  // namespace stator::services
