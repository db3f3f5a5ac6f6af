// SPDX-License-Identifier: Apache-2.0
#include "stator/services/service_api.h"

#include <array>
#include <utility>

#include "stator/core/log.h"
#include "stator/json/writer.h"
#include "stator/net/browser_guard.h"
#include "stator/text/percent.h"

namespace stator::services {
namespace {

constexpr int kTooManyRequests = 429;
constexpr std::array<double, 10> kSeconds = {0.0001, 0.0003, 0.001, 0.003, 0.01,
                                             0.03,   0.1,    0.3,   1,     3};

ServiceReply error_reply(int status, std::string_view message) {
  ServiceReply reply{.status = status};
  json::Writer(reply.body).begin_object().key("error").value(message).end_object();
  return reply;
}

/// A value of a query string, where a plus stands for a space.
std::string query_decode(std::string value) {
  std::ranges::replace(value, '+', ' ');
  return text::percent_decode(value);
}

}  // namespace

ServiceReply ok_reply(int status) {
  return {.status = status, .body = R"({"status":"ok"})"};
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) {
      return query_decode(std::string(pair.substr(std::min(equals + 1, pair.size()))));
    }
  }
  return std::nullopt;
}

ServiceApi::ServiceApi(ServiceOptions options, const Clock& clock, Metrics& metrics)
    : options_(std::move(options)), clock_(clock), metrics_(metrics) {
  add("GET", "/health", [](const ServiceRequest&) { return ok_reply(); });
  add("GET", "/metrics", [this](const ServiceRequest&) {
    return ServiceReply{.body = metrics_.render(), .content_type = Metrics::kContentType};
  });
}

void ServiceApi::add(std::string_view method, std::string_view pattern, Handler handler) {
  constexpr std::string_view kId = "{id}";
  const size_t id = pattern.find(kId);
  Route route{.method = std::string(method),
              .before = std::string(pattern.substr(0, id)),
              .has_id = id != std::string_view::npos,
              .handler = std::move(handler)};
  if (route.has_id) {
    route.after = pattern.substr(id + kId.size());
  }
  const MetricLabels labels = {{"endpoint", std::string(pattern)}, {"method", route.method}};
  const std::string& prefix = options_.metrics_prefix;
  route.requests = metrics_.counter(prefix + "_requests_total", "requests answered", labels);
  route.errors =
      metrics_.counter(prefix + "_errors_total", "of those, answered with an error", labels);
  route.seconds = metrics_.histogram(prefix + "_request_duration_seconds",
                                     "time to answer a request", kSeconds, labels);
  routes_.push_back(std::move(route));
}

std::optional<std::string_view> ServiceApi::Route::match(std::string_view path) const {
  if (!has_id) {
    return path == before ? std::optional(std::string_view()) : std::nullopt;
  }
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) ||
      !path.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view id =
      path.substr(before.size(), path.size() - before.size() - after.size());
  return id.find('/') == std::string_view::npos ? std::optional(id) : std::nullopt;
}

ServiceReply ServiceApi::answer(const ServiceRequest& request) const {
  const TimePoint start = clock_.now();
  bool known_path = false;
  for (const Route& route : routes_) {
    const auto id = route.match(request.path);
    known_path = known_path || id.has_value();
    if (!id || route.method != request.method) {
      continue;
    }
    ServiceRequest with_id = request;
    const std::string decoded = text::percent_decode(*id);
    with_id.id = decoded;
    auto reply = route.handler(with_id);
    route.requests.add();
    route.seconds.observe(std::chrono::duration<double>(clock_.now() - start).count());
    if (!reply) {
      const bool overloaded = reply.error().code() == Code::kOverloaded;
      reply = error_reply(overloaded ? kTooManyRequests : reply.error().info().http_status,
                          reply.error().message());
    }
    if (reply->status >= 400) {
      route.errors.add();
    }
    return std::move(*reply);
  }
  return known_path ? error_reply(405, "this path does not take " + std::string(request.method))
                    : error_reply(404, "no endpoint " + std::string(request.path));
}

ServiceReply ServiceApi::answer_http(const net::HttpRequest& request) const {
  const std::string_view method = request.method() == "HEAD" ? "GET" : request.method();
  if (method != "GET") {
    if (const Status may = net::check_may_change(request, {}); !may) {
      return error_reply(may.error().info().http_status, may.error().message());
    }
  }
  return answer(
      {.method = method, .path = request.path(), .query = request.query(), .body = request.body()});
}

void ServiceApi::on_request(net::HttpExchange& exchange) {
  const TimePoint start = clock_.now();
  const net::HttpRequest& request = exchange.request();
  const ServiceReply reply = answer_http(request);
  log_access(request, reply.status, clock_.now() - start);
  const auto trace = request.header(options_.trace_id_header);
  const net::HttpHeader echo{options_.trace_id_header, trace.value_or("")};
  exchange.respond(reply.status, reply.content_type, reply.body,
                   std::span(&echo, trace.has_value() ? 1 : 0));
}

void ServiceApi::log_access(const net::HttpRequest& request, int status, Duration took) const {
  if (options_.access_log) {
    log::info("access", "request",
              {{"method", request.method()},
               {"target", request.target()},
               {"status", status},
               {"us", std::chrono::duration_cast<std::chrono::microseconds>(took).count()},
               {"trace_id", request.header(options_.trace_id_header).value_or("")}});
  }
}

}  // namespace stator::services
