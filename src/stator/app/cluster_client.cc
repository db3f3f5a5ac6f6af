// SPDX-License-Identifier: Apache-2.0
#include "stator/app/cluster_client.h"

#include <fmt/format.h>

#include <charconv>

#include "stator/app/terminal.h"
#include "stator/kube/access.h"
#include "stator/net/http_server.h"

namespace stator::app {
namespace {

class HealthService final : public HealthServer, public net::HttpHandler {
 public:
  HealthService(std::function<bool()> is_ready, Clock& clock, Metrics& metrics)
      : is_ready_(std::move(is_ready)), metrics_(metrics), shards_(1, clock, metrics) {}

  ~HealthService() override {
    shards_.stop();
    servers_.clear();
  }

  Status open(uint16_t port) {
    net::HttpServerConfig config;
    config.port = port;
    net::HttpHandler* const handlers[] = {this};
    STATOR_TRY(servers_, net::HttpServer::listen_on_all(shards_, config, handlers, metrics_),
               "--health-port");
    shards_.start();
    return {};
  }

  void on_request(net::HttpExchange& exchange) override {
    const std::string_view path = exchange.request().path();
    if (path == "/metrics") {
      exchange.respond(200, Metrics::kContentType, metrics_.render());
    } else if (path == "/healthz") {
      exchange.respond(200, "text/plain", "ok\n");
    } else if (path == "/readyz") {
      const bool ready = is_ready_();
      exchange.respond(ready ? 200 : 503, "text/plain", ready ? "ok\n" : "not ready\n");
    } else {
      exchange.respond(404, "text/plain", "not found: /metrics, /healthz, /readyz\n");
    }
  }

 private:
  std::function<bool()> is_ready_;
  Metrics& metrics_;
  net::ShardSet shards_;
  std::vector<std::unique_ptr<net::HttpServer>> servers_;
};

}  // namespace

std::string option_of(const Invocation& invocation, std::string_view flag,
                      std::string_view fallback) {
  const auto it = invocation.options.find(flag);
  return it == invocation.options.end() ? std::string(fallback) : it->second;
}

namespace {

Result<int64_t> number_of(const Invocation& invocation, std::string_view flag, int64_t fallback,
                          int64_t min, int64_t max) {
  const auto it = invocation.options.find(flag);
  if (it == invocation.options.end()) {
    return fallback;
  }
  const std::string& text = it->second;
  int64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < min || number > max) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{}: '{}' is not a whole number from {} to {}", flag, text, min, max));
  }
  return number;
}

}  // namespace

Result<int32_t> port_option(const Invocation& invocation, std::string_view flag, int32_t fallback) {
  STATOR_TRY(const int64_t port, number_of(invocation, flag, fallback, -1, 65535));
  return static_cast<int32_t>(port);
}

Result<int64_t> whole_option(const Invocation& invocation, std::string_view flag, int64_t fallback,
                             int64_t max) {
  return number_of(invocation, flag, fallback, 0, max);
}

Result<std::unique_ptr<kube::Client>> make_cluster_client(const Invocation& invocation,
                                                          std::string_view agent, Clock& clock,
                                                          Metrics& metrics) {
  const std::string path = option_of(invocation, "--kubeconfig", "");
  kube::ClientConfig config{.agent = std::string(agent)};
  if (path.empty()) {
    STATOR_TRY(config.access,
               kube::read_in_cluster(read_env("KUBERNETES_SERVICE_HOST").value_or(""),
                                     read_env("KUBERNETES_SERVICE_PORT").value_or("")));
  } else {
    STATOR_TRY(config.access, kube::read_kubeconfig(path, option_of(invocation, "--context", "")),
               "--kubeconfig");
  }
  return std::make_unique<kube::Client>(std::move(config), clock, metrics);
}

Result<std::unique_ptr<HealthServer>> start_health_server(int32_t port,
                                                          std::function<bool()> is_ready,
                                                          Clock& clock, Metrics& metrics) {
  if (port < 0) {
    return std::unique_ptr<HealthServer>();
  }
  auto server = std::make_unique<HealthService>(std::move(is_ready), clock, metrics);
  STATOR_CHECK(server->open(static_cast<uint16_t>(port)));
  return server;
}

}  // namespace stator::app
