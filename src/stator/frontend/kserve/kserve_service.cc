// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/kserve/kserve_service.h"

#include <fmt/format.h>

#include <utility>

#include "stator/frontend/answer.h"
#include "stator/frontend/kserve/kserve_call.h"
#include "stator/json/writer.h"
#include "stator/net/grpc_exchange.h"
#include "stator/protocols/kserve/kserve.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {

namespace kserve = protocols::kserve;

KserveService::KserveService(const Environment& environment) : environment_(environment) {}
KserveService::~KserveService() = default;

bool KserveService::answer(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  const std::string_view path = request.path();
  // Not over HTTP/1.1, which has no trailers.
  if (exchange.takes_trailers() && net::is_grpc(request)) {
    ended_.clear();
    const auto method = kserve::find_method(path);
    if (!method) {
      net::GrpcExchange(exchange, 0).fail(501, fmt::format("no method {} is served here", path));
      return true;
    }
    keep(std::make_unique<GrpcCall>(*this, exchange, *method));
    return true;
  }
  if (!kserve::is_kserve_path(path)) {
    return false;
  }
  if (request.method() == "GET" || request.method() == "HEAD") {
    return answer_get(exchange);
  }
  const auto model = kserve::parse_model_path(path);
  if (request.method() != "POST" || !model || model->verb != kserve::Verb::kInfer) {
    return false;
  }
  ended_.clear();
  auto call = std::make_unique<HttpCall>(*this, exchange);
  HttpCall& started = *call;
  keep(std::move(call));
  started.start();
  return true;
}

bool KserveService::answer_get(net::HttpExchange& exchange) {
  const std::string_view path = exchange.request().path();
  if (path == "/v2/health/live") {
    exchange.respond(200, kJson, R"({"live":true})");
  } else if (path == "/v2/health/ready") {
    const bool ready = server_ready();
    exchange.respond(ready ? 200 : 503, kJson, ready ? R"({"ready":true})" : R"({"ready":false})");
  } else if (path == "/v2") {
    std::string body;
    kserve::append_server_metadata(body);
    exchange.respond(200, kJson, body);
  } else if (kserve::parse_model_path(path)) {
    answer_model(exchange);
  } else {
    return false;
  }
  return true;
}

void KserveService::answer_model(net::HttpExchange& exchange) {
  const kserve::ModelPath asked = *kserve::parse_model_path(exchange.request().path());
  const NamedModel named = environment_.catalog.resolve(asked.model);
  const bool known =
      named.model != nullptr && (asked.version.empty() || asked.version == kserve::kModelVersion);
  if (!known) {
    return refuse(exchange,
                  Error(Code::kNotFound, fmt::format("model '{}' not found", asked.model)));
  }
  std::string body;
  switch (asked.verb) {
    case kserve::Verb::kReady: {
      const bool ready = server_ready() && named.model->ready();
      json::Writer(body)
          .begin_object()
          .key("name")
          .value(asked.model)
          .key("ready")
          .value(ready)
          .end_object();
      exchange.respond(ready ? 200 : 503, kJson, body);
      return;
    }
    case kserve::Verb::kConfig:
      kserve::append_model_config(body, asked.model);
      break;
    case kserve::Verb::kMetadata:
      kserve::append_model_metadata(body, asked.model);
      break;
    case kserve::Verb::kInfer:
    case kserve::Verb::kGenerate:
    case kserve::Verb::kGenerateStream:
      return answer_unknown_route(exchange, protocols::style_for(&kserve::kProtocol, {}));
  }
  exchange.respond(200, kJson, body);
}

bool KserveService::server_ready() const {
  return environment_.stage.load(std::memory_order_relaxed) == Stage::kServing &&
         environment_.catalog.takes_work();
}

void KserveService::refuse(net::HttpExchange& exchange, const api::ApiError& error) const {
  respond_error(exchange, error,
                protocols::style_for(&kserve::kProtocol,
                                     {.overload_status = environment_.config.overload_status}),
                environment_.config.retry_after);
}

void KserveService::keep(std::unique_ptr<Call> call) {
  Call* const key = call.get();
  calls_.emplace(key, std::move(call));
}

void KserveService::end(Call& call) {
  const auto found = calls_.find(&call);
  ended_.push_back(std::move(found->second));
  calls_.erase(found);
  if (!forget_timer_.pending()) {  // what is written down of requests waits for it
    forget_timer_ = environment_.shard.after(Duration::zero(), [this] { ended_.clear(); });
  }
}

void KserveService::stop() {
  forget_timer_.cancel();
  while (!calls_.empty()) {
    calls_.begin()->second->fail(503, "the server is shutting down, retry");
  }
}

}  // namespace stator::frontend
