// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/system_server.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/frontend/endpoints.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/net/browser_guard.h"
#include "stator/net/http_server.h"
#include "stator/net/loopback.h"
#include "stator/net/shard.h"
#include "stator/services/service_api.h"

namespace stator::cli {
namespace {

using engine::adapters::Control;

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kLoras = "/v1/loras";
constexpr size_t kBodyBytesMax = 64UL << 10;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kPathBytesMax = 4096;
// Operators, their dashboards and probes.
constexpr size_t kConnectionsMax = 256;

struct Target {
  WorkerId id;
  engine::Engine* engine;
  engine::adapters::AdapterEngine* server;  // null: the engine is part of this process
  OwnEngine* own;                           // then it is asked this way
};

Error wrong(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

std::string text_member(const json::Value& object, std::string_view key) {
  return std::string(object.text_at({key}));
}

Result<json::Value> read_body(std::string_view body) {
  auto value = json::parse(body.empty() ? "{}" : body);
  if (!value || !value->is_object()) {
    return wrong("the body must be a JSON object");
  }
  return value;
}

/// What engines read themselves: a folder or a hub name.
Result<std::string> path_of(const json::Value& body) {
  std::string path = text_member(body, "lora_path");
  if (const json::Value* source = body.find("source"); source != nullptr && path.empty()) {
    path = source->is_object() ? text_member(*source, "uri") : "";
  }
  for (const std::string_view scheme : {"file://", "hf://"}) {
    if (path.starts_with(scheme)) {
      path.erase(0, scheme.size());
      break;
    }
  }
  if (path.empty() || path.size() > kPathBytesMax || path.contains("://")) {
    return wrong(
        "lora_path (or source.uri) must be a folder that the engine server sees, file:///FOLDER or "
        "hf://ORG/NAME");
  }
  return path;
}

Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || name.contains('/')) {
    return wrong(fmt::format("lora_name must have 1 to {} bytes, none of them /", kNameBytesMax));
  }
  return {};
}

Result<Control> read_load(std::string_view text) {
  STATOR_TRY(const json::Value body, read_body(text));
  engine::adapters::LoadAdapter load{.name = text_member(body, "lora_name"), .path = {}};
  STATOR_CHECK(check_name(load.name));
  STATOR_TRY(load.path, path_of(body));
  return Control(std::move(load));
}

Result<Control> read_unload(std::string_view text) {
  STATOR_TRY(const json::Value body, read_body(text));
  engine::adapters::UnloadAdapter unload{text_member(body, "lora_name")};
  STATOR_CHECK(check_name(unload.name));
  return Control(std::move(unload));
}

Result<Control> read_sleep(std::string_view text) {
  STATOR_TRY(const json::Value body, read_body(text));
  engine::adapters::Sleep sleep;
  if (const json::Value* given = body.find("level")) {
    const auto level = given->as_int64();
    if (level != 1 && level != 2) {
      return wrong("level must be 1 (weights stay in host memory) or 2 (they are dropped)");
    }
    sleep.level = static_cast<uint32_t>(*level);
  }
  return Control(sleep);
}

/// What a request wants done; none: it wants nothing of the kind.
std::optional<Result<Control>> read_control(const net::HttpRequest& request) {
  const std::string_view path = request.path();
  if (request.method() == "DELETE" && path.starts_with(kLoras) && path.size() > kLoras.size() + 1) {
    return Control(engine::adapters::UnloadAdapter{std::string(path.substr(kLoras.size() + 1))});
  }
  if (request.method() != "POST") {
    return std::nullopt;
  }
  if (path == kLoras || path == "/v1/load_lora_adapter") {
    return read_load(request.body());
  }
  if (path == "/v1/unload_lora_adapter") {
    return read_unload(request.body());
  }
  if (path == "/engine/sleep") {
    return read_sleep(request.body());
  }
  if (path == "/engine/wake_up") {
    return Control(engine::adapters::WakeUp{});
  }
  if (path == "/engine/reset_prefix_cache") {
    return Control(engine::adapters::ResetPrefixCache{});
  }
  return std::nullopt;
}

void refuse(net::HttpExchange& exchange, const Error& error) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("error").value(error.message()).end_object();
  exchange.respond(error.info().http_status, kJson, body);
}

/// S1  Everything but post_outcome() happens on the shard's loop, or while it does not run.
/// S2  A wish in wishes_ has an exchange that is not answered yet; at most one per connection.
class SystemService final : public SystemServer, private net::HttpHandler {
 public:
  SystemService(SystemSettings settings, std::span<const WorkerHost::Worker> workers, Clock& clock,
                Metrics& metrics)
      : settings_(std::move(settings)), metrics_(metrics), shards_(1, clock, metrics) {
    for (const WorkerHost::Worker& worker : workers) {
      targets_.push_back(
          {worker.record.key.worker, worker.engine.get(), worker.server, worker.own.get()});
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
  /// Something asked of several workers.
  struct Wish final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone /*reason*/) override { exchange = nullptr; }
    net::HttpExchange* exchange = nullptr;  // null: nobody waits for the answer
    std::vector<std::pair<WorkerId, std::optional<Status>>> outcomes;
    size_t open = 0;
  };

  void on_request(net::HttpExchange& exchange) override;
  bool answer_question(net::HttpExchange& exchange) const;
  Status check_token(const net::HttpRequest& request) const;
  Status check_change(const net::HttpRequest& request) const;
  Result<std::vector<Target>> targets_of(const net::HttpRequest& request) const;
  void carry_out(net::HttpExchange& exchange, const Control& control,
                 const std::vector<Target>& targets);
  void post_outcome(uint64_t wish, size_t index, Status outcome);
  void collect(uint64_t wish, size_t index, Status outcome);
  static void answer(Wish& wish);
  std::string health(bool& ready) const;
  std::string adapters() const;

  const SystemSettings settings_;
  Metrics& metrics_;
  std::vector<Target> targets_;
  net::ShardSet shards_;
  std::unique_ptr<net::HttpServer> http_;
  FlatMap<uint64_t, std::unique_ptr<Wish>> wishes_;
  uint64_t last_wish_ = 0;
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
  auto control = read_control(request);
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
  carry_out(exchange, **control, *targets);
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
  } else if (request.path() == kLoras) {
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

Result<std::vector<Target>> SystemService::targets_of(const net::HttpRequest& request) const {
  const auto wanted = services::query_value(request.query(), "worker_id");
  std::vector<Target> out = targets_;
  if (wanted) {
    std::erase_if(
        out, [&](const Target& target) { return std::to_string(target.id.value()) != *wanted; });
  }
  if (out.empty()) {
    return Error(Code::kNotFound, fmt::format("no worker {} in this process", wanted.value_or("")));
  }
  return out;
}

void SystemService::carry_out(net::HttpExchange& exchange, const Control& control,
                              const std::vector<Target>& targets) {
  auto owned = std::make_unique<Wish>();
  Wish& wish = *owned;
  wish.exchange = &exchange;
  wish.open = targets.size();
  for (const Target& target : targets) {
    wish.outcomes.emplace_back(target.id, std::nullopt);
  }
  exchange.set_observer(&wish);
  const uint64_t id = ++last_wish_;
  wishes_.emplace(id, std::move(owned));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].server != nullptr) {
      targets[i].server->control(
          control, [this, id, i](Status outcome) { post_outcome(id, i, std::move(outcome)); });
    } else if (targets[i].own != nullptr) {
      post_outcome(id, i, targets[i].own->carry_out(control));
    } else if (std::holds_alternative<engine::adapters::ResetPrefixCache>(control)) {
      targets[i].engine->reset_prefix_cache();
      post_outcome(id, i, {});
    } else {
      post_outcome(id, i,
                   Error(Code::kUnsupported,
                         fmt::format("engine '{}' has no {}", targets[i].engine->info().kind,
                                     to_string(control))));
    }
  }
}

/// Any thread.
void SystemService::post_outcome(uint64_t wish, size_t index, Status outcome) {
  if (!shards_.shard(0).post([this, wish, index, outcome = std::move(outcome)]() mutable {
        collect(wish, index, std::move(outcome));
      })) {
    log::info("system", "closing: an operator's wish ends without an answer");
  }
}

void SystemService::collect(uint64_t id, size_t index, Status outcome) {
  const auto found = wishes_.find(id);
  Wish& wish = *found->second;
  wish.outcomes[index].second = std::move(outcome);
  if (--wish.open > 0) {
    return;
  }
  if (wish.exchange != nullptr) {
    wish.exchange->set_observer(nullptr);
    answer(wish);
  }
  wishes_.erase(found);
}

void SystemService::answer(Wish& wish) {
  int status = 200;
  std::string body;
  json::Writer json(body);
  json.begin_object().key("workers").begin_array();
  for (const auto& [worker, outcome] : wish.outcomes) {
    const bool done = outcome->has_value();
    json.begin_object().key("worker_id").value(worker.value());
    json.key("status").value(done ? "done" : "failed");
    if (!done) {
      json.key("message").value(outcome->error().message());
      status = status == 200 ? outcome->error().info().http_status : status;
    }
    json.end_object();
  }
  json.end_array().end_object();
  wish.exchange->respond(status, kJson, body);
}

std::string SystemService::health(bool& ready) const {
  std::string workers;
  json::Writer json(workers);
  json.begin_array();
  for (const Target& target : targets_) {
    const bool up = target.server == nullptr || target.server->healthy();
    const bool asleep = (target.server != nullptr && target.server->asleep()) ||
                        (target.own != nullptr && target.own->asleep());
    ready = ready && up && !asleep;
    json.begin_object().key("worker_id").value(target.id.value());
    json.key("state").value(!up ? "notready" : asleep ? "asleep" : "ready").end_object();
  }
  json.end_array();
  return fmt::format(R"({{"status":"{}","workers":{}}})", ready ? "ready" : "notready", workers);
}

std::string SystemService::adapters() const {
  std::map<std::string, std::vector<WorkerId>> holders;
  for (const Target& target : targets_) {
    std::vector<std::string> names;
    if (target.server != nullptr) {
      names = target.server->adapters();
    } else if (target.own != nullptr) {
      names = target.own->adapters();
    }
    for (std::string& name : names) {
      holders[std::move(name)].push_back(target.id);
    }
  }
  std::string body;
  json::Writer json(body);
  json.begin_object().key("loras").begin_array();
  for (const auto& [name, workers] : holders) {
    json.begin_object().key("lora_name").value(name).key("workers").begin_array();
    for (const WorkerId worker : workers) {
      json.value(worker.value());
    }
    json.end_array().end_object();
  }
  json.end_array().key("count").value(holders.size()).end_object();
  return body;
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

}  // namespace stator::cli
