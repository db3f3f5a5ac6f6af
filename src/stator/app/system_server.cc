// SPDX-License-Identifier: Apache-2.0
#include "stator/app/system_server.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <map>
#include <utility>
#include <vector>

#include "stator/app/operator_wishes.h"
#include "stator/core/log.h"
#include "stator/frontend/endpoints.h"
#include "stator/json/writer.h"
#include "stator/net/browser_guard.h"
#include "stator/net/http_server.h"
#include "stator/net/loopback.h"
#include "stator/net/shard.h"
#include "stator/services/service_api.h"

namespace stator::app {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr size_t kBodyBytesMax = 64UL << 10;
// Operators, their dashboards and probes.
constexpr size_t kConnectionsMax = 256;

void refuse(net::HttpExchange& exchange, const Error& error) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("error").value(error.message()).end_object();
  exchange.respond(error.info().http_status, kJson, body);
}

/// S1  Everything happens on the shard's loop, or while it does not run.
class SystemService final : public SystemServer, private net::HttpHandler {
 public:
  SystemService(SystemSettings settings, std::span<const WorkerHost::Worker> workers, Clock& clock,
                Metrics& metrics)
      : settings_(std::move(settings)),
        metrics_(metrics),
        shards_(1, clock, metrics),
        wishes_(shards_.shard(0)) {
    for (const WorkerHost::Worker& worker : workers) {
      targets_.emplace_back(worker);
    }
  }
  ~SystemService() override { close(); }
  SystemService(const SystemService&) = delete;
  SystemService& operator=(const SystemService&) = delete;

  Status open() {
    net::HttpServerConfig http;
    http.host = settings_.host;
    http.port = static_cast<uint16_t>(settings_.port);
    http.body_bytes_max = kBodyBytesMax;
    http.connections_max = kConnectionsMax;
    http.budget_prefix = "system_";
    STATOR_TRY(http_, net::HttpServer::listen(shards_.shard(0), http, *this, metrics_),
               "system.port");
    shards_.start();
    return {};
  }
  uint16_t port() const override { return http_->port(); }
  void close() override {
    if (http_ != nullptr) {
      if (!shards_.shard(0).run_and_wait([this] { http_.reset(); })) {
        log::warn("system", "too busy to close its connections in order");
      }
      shards_.stop();
    }
  }

 private:
  void on_request(net::HttpExchange& exchange) override;
  bool answer_question(net::HttpExchange& exchange) const;
  Status check_token(const net::HttpRequest& request) const;
  Status check_change(const net::HttpRequest& request) const;
  Result<std::vector<WishBoard::Asked>> targets_of(const net::HttpRequest& request) const;
  std::string health(bool& ready) const;
  std::string adapters() const;

  const SystemSettings settings_;
  Metrics& metrics_;
  std::vector<WishTarget> targets_;
  net::ShardSet shards_;
  WishBoard wishes_;
  std::unique_ptr<net::HttpServer> http_;
};

void SystemService::on_request(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  if (net::is_loopback_host(settings_.host)) {
    if (Status named = net::check_host(request, settings_.allowed_hosts); !named) {
      refuse(exchange, named.error());
      return;
    }
  }
  if (answer_question(exchange)) {
    return;
  }
  const session::OperatorWish wish = wish_of(request);
  const auto control = read_control(wish);
  if (!control) {
    refuse(exchange, Error(Code::kNotFound, fmt::format("nothing answers {} {} here",
                                                        request.method(), request.path())));
    return;
  }
  if (Status allowed = check_change(request); !allowed) {
    refuse(exchange, allowed.error());
    return;
  }
  auto targets = targets_of(request);
  if (!*control || !targets) {
    refuse(exchange, *control ? targets.error() : control->error());
    return;
  }
  if (Status begun = wishes_.begin(exchange, wish, *targets); !begun) {
    refuse(exchange, begun.error());
  }
}

bool SystemService::answer_question(net::HttpExchange& exchange) const {
  const net::HttpRequest& request = exchange.request();
  if (request.method() != "GET" && request.method() != "HEAD") {
    return false;
  }
  if (request.path() == "/live") {
    exchange.respond(200, kJson, R"({"status":"live"})");
  } else if (request.path() == "/health") {
    bool ready = true;
    const std::string body = health(ready);
    exchange.respond(ready ? 200 : 503, kJson, body);
  } else if (request.path() == "/metrics") {
    const auto format = Metrics::format_for(request.header("accept").value_or(""));
    exchange.respond(200, Metrics::content_type(format), metrics_.render(format));
  } else if (request.path() == kLorasPath) {
    exchange.respond(200, kJson, adapters());
  } else {
    return false;
  }
  return true;
}

Status SystemService::check_token(const net::HttpRequest& request) const {
  if (settings_.token.empty()) {
    return net::is_loopback_host(settings_.host)
               ? Status()
               : Error(Code::kPermissionDenied,
                       fmt::format("system.host {} is reached by others, so changes need "
                                   "system.token (environment STATOR_SYSTEM_TOKEN)",
                                   settings_.host));
  }
  const std::string given(request.header("authorization").value_or(""));
  const std::string wanted = "Bearer " + settings_.token;
  if (given.size() != wanted.size() ||
      CRYPTO_memcmp(given.data(), wanted.data(), wanted.size()) != 0) {
    return Error(Code::kUnauthenticated, "send Authorization: Bearer with the system.token");
  }
  return {};
}

/// Pages in browsers of this machine reach loopback, too.
Status SystemService::check_change(const net::HttpRequest& request) const {
  if (!request.body().empty() && !frontend::is_json_content_type(request)) {
    return Error(Code::kUnsupportedMedia, "send the body as Content-Type: application/json");
  }
  STATOR_CHECK(net::check_may_change(
      request, {.cors_origins = {}, .allowed_hosts = settings_.allowed_hosts}));
  return check_token(request);
}

Result<std::vector<WishBoard::Asked>> SystemService::targets_of(
    const net::HttpRequest& request) const {
  const auto wanted = services::query_value(request.query(), "worker_id");
  std::vector<WishBoard::Asked> out;
  for (const WishTarget& target : targets_) {
    if (!wanted || std::to_string(target.id.value()) == *wanted) {
      out.push_back(
          {target.id, [target](const session::OperatorWish& wish, session::OperatorDone done) {
             target.carry_out(wish, std::move(done));
           }});
    }
  }
  if (out.empty()) {
    return Error(Code::kNotFound, fmt::format("no worker {} in this process", wanted.value_or("")));
  }
  return out;
}

std::string SystemService::health(bool& ready) const {
  std::string workers;
  json::Writer json(workers);
  json.begin_array();
  for (const WishTarget& target : targets_) {
    const bool up = target.up();
    const bool asleep = target.asleep();
    ready = ready && up && !asleep;
    json.begin_object().key("worker_id").value(target.id.value());
    json.key("state").value(!up ? "notready" : asleep ? "asleep" : "ready").end_object();
  }
  json.end_array();
  return fmt::format(R"({{"status":"{}","workers":{}}})", ready ? "ready" : "notready", workers);
}

std::string SystemService::adapters() const {
  std::map<std::string, std::vector<WorkerId>> holders;
  for (const WishTarget& target : targets_) {
    for (std::string& name : target.adapters()) {
      holders[std::move(name)].push_back(target.id);
    }
  }
  return render_adapters(holders);
}

}  // namespace

Result<std::unique_ptr<SystemServer>> start_system_server(
    const SystemSettings& settings, std::span<const WorkerHost::Worker> workers, Clock& clock,
    Metrics& metrics) {
  if (settings.port < 0) {
    return std::unique_ptr<SystemServer>();
  }
  if (!net::is_loopback_host(settings.host) && settings.token.empty()) {
    log::warn("system",
              "others reach this service: they may look, and change nothing until system.token is "
              "set (environment STATOR_SYSTEM_TOKEN)",
              {{"host", settings.host}});
  }
  auto service = std::make_unique<SystemService>(settings, workers, clock, metrics);
  STATOR_CHECK(service->open());
  log::info("system", "ready", {{"host", settings.host}, {"port", service->port()}});
  return service;
}

}  // namespace stator::app
