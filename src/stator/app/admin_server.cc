// SPDX-License-Identifier: Apache-2.0
#include "stator/app/admin_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <optional>
#include <utility>

#include "stator/api/error_body.h"
#include "stator/app/operator_wishes.h"
#include "stator/app/thread_profile.h"
#include "stator/app/ui_files.h"
#include "stator/core/log.h"
#include "stator/frontend/answer.h"
#include "stator/frontend/entrance.h"
#include "stator/frontend/request_record.h"
#include "stator/json/writer.h"
#include "stator/net/browser_guard.h"
#include "stator/net/http_server.h"
#include "stator/net/loopback.h"
#include "stator/net/shard.h"
#include "stator/services/service_api.h"
#include "stator/session/operator_client.h"

namespace stator::app {
namespace {

using access::Role;
using frontend::Plane;
using frontend::RouteAccess;

constexpr std::string_view kJson = "application/json";
constexpr size_t kBodyBytesMax = size_t{64} << 10;
constexpr std::string_view kPreview = "/routing/preview";
constexpr size_t kPreviewBytesMax = size_t{4} << 20;  // a prompt
// Operators, their dashboards and probes.
constexpr size_t kConnectionsMax = 256;
constexpr std::string_view kPage = "/ui/";
constexpr size_t kRequestsShown = 50;
constexpr size_t kRequestsShownMax = 4096;
// Of a profile: long enough for the kernel's ticks of 10 ms, short enough for a client to wait.
constexpr double kProfileSecondsMin = 0.1;
constexpr double kProfileSecondsMax = 30;

/// A1  Everything but the constructor and port() happens on the shard's loop, or while it does not
///     run.
class AdminService final : public AdminServer, private net::HttpHandler {
 public:
  AdminService(const Settings& settings, FrontendProcess& process, AdminReach reach, Clock& clock,
               Metrics& metrics)
      : settings_(settings),
        process_(process),
        reach_(reach),
        metrics_(metrics),
        shards_(1, clock, metrics),
        wishes_(shards_.shard(0)) {}
  ~AdminService() override { close(); }
  AdminService(const AdminService&) = delete;
  AdminService& operator=(const AdminService&) = delete;

  Status open() {
    net::HttpServerConfig http;
    http.host = settings_.admin.host;
    http.port = static_cast<uint16_t>(settings_.admin.port);
    http.body_bytes_max = kPreviewBytesMax;
    http.connections_max = kConnectionsMax;
    http.budget_prefix = "admin_";
    if (!net::is_loopback_host(http.host)) {
      http.tls_cert_path = settings_.frontend.http.tls_cert_path;
      http.tls_key_path = settings_.frontend.http.tls_key_path;
      http.tls_client_ca_path = settings_.frontend.http.tls_client_ca_path;
    }
    STATOR_TRY(const auto tls, settings_.rpc.tls());
    STATOR_TRY(workers_, session::OperatorClient::create(tls, shards_.shard(0)));
    STATOR_TRY(http_, net::HttpServer::listen(shards_.shard(0), http, *this, metrics_),
               "admin.port (flag --admin-port)");
    shards_.start();
    return {};
  }
  uint16_t port() const override { return http_->port(); }
  void close() override {
    if (http_ == nullptr) {
      return;
    }
    if (!shards_.shard(0).run_and_wait([this] {
          http_.reset();
          profile_.timer.cancel();
          workers_.reset();
        })) {
      log::warn("admin", "too busy to close its connections in order");
    }
    shards_.stop();
    http_.reset();
  }

 private:
  struct Route {
    std::string_view method;
    std::string_view path;
    Role role;
    void (AdminService::*answer)(net::HttpExchange& exchange);
    bool is_prefix = false;

    bool matches(std::string_view asked) const {
      return is_prefix ? asked.starts_with(path) && asked.size() > path.size() : asked == path;
    }
  };
  /// A profile that is being taken; one at a time.
  struct Profile final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone /*reason*/) override { exchange = nullptr; }
    net::HttpExchange* exchange = nullptr;  // null: nobody waits for it
    bool taken = false;
    TimePoint since;
    std::map<int, ThreadTime> before;
    net::Timer timer;
  };
  static const std::array<Route, 12> kRoutes;
  friend std::vector<frontend::RouteRow> list_routes_of_admin();

  void on_request(net::HttpExchange& exchange) override;
  net::BodyRule body_rule(const net::HttpRequest& head) const override {
    return {.bytes_max = head.path() == kPreview ? kPreviewBytesMax : kBodyBytesMax};
  }
  bool admit(net::HttpExchange& exchange, const Route* route);
  void audit(net::HttpExchange& exchange) const;
  void refuse(net::HttpExchange& exchange, const Error& error) const;
  bool answer_page(net::HttpExchange& exchange) const;
  void answer_tenants(net::HttpExchange& exchange);
  void answer_requests(net::HttpExchange& exchange);
  void answer_preview(net::HttpExchange& exchange);
  void answer_config(net::HttpExchange& exchange);
  void answer_drain(net::HttpExchange& exchange);
  void answer_profile(net::HttpExchange& exchange);
  void end_profile();
  void answer_wish(net::HttpExchange& exchange);
  Result<std::vector<WishBoard::Asked>> asked_by(const net::HttpRequest& request);

  const Settings& settings_;
  FrontendProcess& process_;
  const AdminReach reach_;
  Metrics& metrics_;
  net::ShardSet shards_;
  WishBoard wishes_;
  Profile profile_;
  std::unique_ptr<session::OperatorClient> workers_;  // of other processes
  std::unique_ptr<net::HttpServer> http_;
};

const std::array<AdminService::Route, 12> AdminService::kRoutes = {{
    {"GET", "/tenants", Role::kOperator, &AdminService::answer_tenants},
    {"GET", "/requests", Role::kOperator, &AdminService::answer_requests},
    {"GET", "/config", Role::kOperator, &AdminService::answer_config},
    {"GET", "/profile", Role::kOperator, &AdminService::answer_profile},
    {"GET", kLorasPath, Role::kOperator, &AdminService::answer_wish},
    {"POST", kLorasPath, Role::kOperator, &AdminService::answer_wish},
    {"DELETE", "/v1/loras/", Role::kOperator, &AdminService::answer_wish, true},
    {"POST", "/engine/sleep", Role::kOperator, &AdminService::answer_wish},
    {"POST", "/engine/wake_up", Role::kOperator, &AdminService::answer_wish},
    {"POST", "/engine/reset_prefix_cache", Role::kOperator, &AdminService::answer_wish},
    {"POST", kPreview, Role::kOperator, &AdminService::answer_preview},
    {"POST", "/drain", Role::kOperator, &AdminService::answer_drain},
}};

std::vector<frontend::RouteRow> list_routes_of_admin() {
  std::vector<frontend::RouteRow> rows;
  for (const AdminService::Route& route : AdminService::kRoutes) {
    rows.push_back({route.method, std::string(route.path) + (route.is_prefix ? "{id}" : ""),
                    RouteAccess{.role = route.role, .plane = Plane::kAdmin}});
  }
  rows.push_back(
      {"GET", std::string(kPage), RouteAccess{.role = Role::kAnyone, .plane = Plane::kAdmin}});
  return rows;
}

void AdminService::refuse(net::HttpExchange& exchange, const Error& error) const {
  frontend::respond_error(exchange, error.clone(),
                          {.overload_status = settings_.frontend.overload_status}, {});
}

/// Host and origin, then who asks. False: answered.
bool AdminService::admit(net::HttpExchange& exchange, const Route* route) {
  const net::HttpRequest& request = exchange.request();
  if (net::is_loopback_host(settings_.admin.host)) {
    if (Status named = net::check_host(request, settings_.admin.allowed_hosts); !named) {
      refuse(exchange, named.error());
      return false;
    }
  }
  if (request.method() == "POST" || request.method() == "DELETE") {
    if (Status may = net::check_may_change(
            request, {.cors_origins = {}, .allowed_hosts = settings_.admin.allowed_hosts});
        !may) {
      refuse(exchange, may.error());
      return false;
    }
  }
  if (route == nullptr) {
    return process_.entrance()->admit(exchange, frontend::Listener::kAdmin, shards_.shard(0).now());
  }
  return process_.entrance()->admit_role(
      exchange, RouteAccess{.role = route->role, .plane = Plane::kAdmin}, shards_.shard(0).now());
}

void AdminService::on_request(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  const std::string_view method = request.method() == "HEAD" ? "GET" : request.method();
  const auto* const own = std::ranges::find_if(kRoutes, [&](const Route& route) {
    return route.method == method && route.matches(request.path());
  });
  const Route* route = own == kRoutes.end() ? nullptr : own;
  if (route == nullptr && method == "GET" && answer_page(exchange)) {
    return;
  }
  if (!admit(exchange, route)) {
    return;
  }
  audit(exchange);
  if (route != nullptr) {
    (this->*route->answer)(exchange);
    return;
  }
  const frontend::EndpointContext context{
      .config = settings_.frontend,
      .catalog = process_.catalog(),
      .receipts = process_.receipts(),
      .metrics = metrics_,
      .wall_now = shards_.shard(0).clock().wall_now(),
      .stage = process_.frontend().stage(),
      .may_see_newest = true,
      .shows_details = process_.entrance()->shows_details(request)};
  if (frontend::find_access(request).plane == Plane::kPublic ||
      !frontend::answer_endpoint(exchange, context)) {
    refuse(exchange, Error(Code::kNotFound, fmt::format("Route not found: {} {}", request.method(),
                                                        request.path())));
  }
}

/// The page's files: for everybody who reaches the port, because they show nothing of the service.
/// False: it is none of them.
bool AdminService::answer_page(net::HttpExchange& exchange) const {
  const std::string_view path = exchange.request().path();
  static constexpr std::array<net::HttpHeader, 4> kHeaders = {{
      {"content-security-policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
       "data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
      {"x-content-type-options", "nosniff"},
      {"referrer-policy", "no-referrer"},
      {"cache-control", "no-cache"},
  }};
  if (path == "/ui" || path == "/") {
    const net::HttpHeader location{"location", kPage};
    exchange.respond(308, {}, {}, std::span(&location, 1));
    return true;
  }
  if (!path.starts_with(kPage)) {
    return false;
  }
  const std::string_view name = path == kPage ? "index.html" : path.substr(kPage.size());
  const auto file = std::ranges::find(ui_files(), name, &UiFile::name);
  if (file == ui_files().end()) {
    return false;
  }
  exchange.respond(200,
                   name.ends_with(".js")    ? "text/javascript; charset=utf-8"
                   : name.ends_with(".css") ? "text/css; charset=utf-8"
                                            : "text/html; charset=utf-8",
                   file->text, kHeaders);
  return true;
}

/// Whoever changes something is written down.
void AdminService::audit(net::HttpExchange& exchange) const {
  const net::HttpRequest& request = exchange.request();
  telemetry::Telemetry* telemetry = process_.telemetry();
  if (telemetry == nullptr || request.method() == "GET" || request.method() == "HEAD" ||
      request.path() == kPreview) {
    return;
  }
  std::string members;
  json::Writer json(members);
  json.begin_object().key("method").value(request.method()).key("path").value(request.path());
  json.key("client").value(exchange.client_address());
  if (const auto* record = frontend::record_of(request)) {
    json.key("role")
        .value(describe(record->caller.role))
        .key("key_id")
        .value(record->caller.key_id);
  }
  json.key("body").raw(telemetry::redact_body(request.body())).end_object();
  telemetry->audit("operator", std::string_view(members).substr(1, members.size() - 2));
}

void AdminService::answer_requests(net::HttpExchange& exchange) {
  const std::string_view query = exchange.request().query();
  const std::string id = services::query_value(query, "request_id").value_or("");
  const std::string state = services::query_value(query, "state").value_or("");
  const std::string limit = services::query_value(query, "limit").value_or("");
  size_t count = kRequestsShown;
  if (!limit.empty()) {
    const auto read = std::from_chars(limit.data(), limit.data() + limit.size(), count);
    if (read.ec != std::errc() || read.ptr != limit.data() + limit.size() ||
        count > kRequestsShownMax) {
      refuse(exchange, Error(Code::kInvalidArgument,
                             fmt::format("limit must be 0 to {}", kRequestsShownMax)));
      return;
    }
  }
  using Shown = telemetry::Telemetry::Shown;
  if (!state.empty() && state != "running" && state != "ended") {
    refuse(exchange, Error(Code::kInvalidArgument, "state must be running or ended"));
    return;
  }
  const Shown shown = state.empty()        ? Shown::kAll
                      : state == "running" ? Shown::kRunning
                                           : Shown::kEnded;
  exchange.respond(200, kJson, process_.telemetry()->render_requests(count, id, shown));
}

void AdminService::answer_preview(net::HttpExchange& exchange) {
  if (!frontend::is_json_content_type(exchange.request())) {
    refuse(exchange,
           Error(Code::kUnsupportedMedia, "send the body as Content-Type: application/json"));
    return;
  }
  // As its tenant would ask: whose cache it is, the tenant says.
  auto record = std::make_shared<frontend::RequestRecord>();
  record->access = process_.access();
  record->caller.tenant = services::query_value(exchange.request().query(), "tenant").value_or("");
  net::HttpRequest asked("POST", kPreview);
  asked.mutable_body() = exchange.request().take_body();
  asked.set_notes(std::move(record));
  auto preview = process_.frontend().preview(std::move(asked));
  if (!preview.has_value()) {
    refuse(exchange, preview.error().error);
    return;
  }
  exchange.respond(200, kJson, *preview);
}

void AdminService::answer_config(net::HttpExchange& exchange) {
  Settings copy = settings_;
  ConfigSchema schema;
  describe(schema, copy);
  exchange.respond(200, "text/plain; charset=utf-8", schema.render_yaml());
}

void AdminService::answer_tenants(net::HttpExchange& exchange) {
  std::string body;
  json::Writer json(body);
  json.begin_object().key("tenants").begin_array();
  if (process_.access() != nullptr) {
    for (const auto& [name, state] : process_.access()->list_tenants()) {
      json.begin_object().key("tenant").value(name).key("running").value(state.running);
      json.key("tokens").value(state.tokens).key("refused").value(state.refused);
      json.key("weight").value(state.limits.weight);
      json.key("concurrent").value(state.limits.concurrent);
      json.key("requests_per_minute").value(state.limits.requests_per_minute);
      json.key("requests_left").value(state.requests_left);
      json.key("tokens_per_minute").value(state.limits.tokens_per_minute);
      json.key("tokens_left").value(state.tokens_left).end_object();
    }
  }
  json.end_array().end_object();
  exchange.respond(200, kJson, body);
}

void AdminService::answer_drain(net::HttpExchange& exchange) {
  log::info("admin", "an operator asks this process to drain");
  exchange.respond(202, kJson, R"({"status":"draining"})");
  ::kill(::getpid(), SIGTERM);  // the main thread waits for it, and knows what to do
}

void AdminService::answer_profile(net::HttpExchange& exchange) {
  const auto asked = services::query_value(exchange.request().query(), "seconds");
  double seconds = 1;
  if (asked) {
    const auto read = std::from_chars(asked->data(), asked->data() + asked->size(), seconds);
    if (read.ec != std::errc() || read.ptr != asked->data() + asked->size() ||
        !(seconds >= kProfileSecondsMin && seconds <= kProfileSecondsMax)) {
      refuse(exchange,
             Error(Code::kInvalidArgument, fmt::format("seconds must be between {} and {}",
                                                       kProfileSecondsMin, kProfileSecondsMax)));
      return;
    }
  }
  if (profile_.taken) {
    refuse(exchange, Error(Code::kOverloaded, "a profile is being taken; ask again when it ends"));
    return;
  }
  profile_.taken = true;
  profile_.exchange = &exchange;
  profile_.since = shards_.shard(0).clock().now();
  profile_.before = read_thread_times();
  exchange.set_observer(&profile_);
  profile_.timer = shards_.shard(0).after(
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)),
      [this] { end_profile(); });
}

void AdminService::end_profile() {
  profile_.taken = false;
  if (net::HttpExchange* exchange = std::exchange(profile_.exchange, nullptr)) {
    exchange->set_observer(nullptr);
    exchange->respond(200, kJson,
                      render_thread_profile(profile_.before, read_thread_times(),
                                            shards_.shard(0).clock().now() - profile_.since));
  }
}

/// The workers that a request means, each with the way to it.
Result<std::vector<WishBoard::Asked>> AdminService::asked_by(const net::HttpRequest& request) {
  const auto model = services::query_value(request.query(), "model");
  const auto wanted = services::query_value(request.query(), "worker_id");
  const auto records = reach_.discovery.list(
      {.namespace_name = settings_.frontend.worker_namespace, .endpoint = "generate"});
  std::vector<WishBoard::Asked> out;
  for (const discovery::InstanceRecord& record : records) {
    const WorkerId id = record.key.worker;
    if ((model && record.model.name != *model) ||
        (wanted && std::to_string(id.value()) != *wanted)) {
      continue;
    }
    const auto own = std::ranges::find(reach_.hosted, id, [](const WorkerHost::Worker& worker) {
      return worker.record.key.worker;
    });
    session::OperatorHandler ask;
    if (own != reach_.hosted.end()) {
      ask = [target = WishTarget(*own)](const session::OperatorWish& wish,
                                        session::OperatorDone done) {
        target.carry_out(wish, std::move(done));
      };
    } else {
      ask = [this, address = record.address](const session::OperatorWish& wish,
                                             session::OperatorDone done) {
        workers_->ask(address, wish, std::move(done));
      };
    }
    out.push_back({id, std::move(ask)});
  }
  std::ranges::sort(out, {}, [](const WishBoard::Asked& one) { return one.id.value(); });
  if (out.empty()) {
    return Error(Code::kNotFound,
                 model || wanted ? fmt::format("no worker{}{} is known here",
                                               wanted ? " " + *wanted : std::string(),
                                               model ? " of model '" + *model + "'" : std::string())
                                 : std::string("no worker is known here"));
  }
  return out;
}

void AdminService::answer_wish(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  if (!request.body().empty() && !frontend::is_json_content_type(request)) {
    refuse(exchange,
           Error(Code::kUnsupportedMedia, "send the body as Content-Type: application/json"));
    return;
  }
  const session::OperatorWish wish = wish_of(request);
  if (const auto control = read_control(wish); control && !*control) {
    refuse(exchange, control->error());
    return;
  }
  const auto asked = asked_by(request);
  if (!asked) {
    refuse(exchange, asked.error());
    return;
  }
  if (Status begun = wishes_.begin(exchange, wish, *asked); !begun) {
    refuse(exchange, begun.error());
  }
}

}  // namespace

Result<std::unique_ptr<AdminServer>> start_admin_server(const Settings& settings,
                                                        FrontendProcess& process, AdminReach reach,
                                                        Clock& clock, Metrics& metrics) {
  if (settings.admin.port < 0) {
    return std::unique_ptr<AdminServer>();
  }
  if (!net::is_loopback_host(settings.admin.host) && !settings.access.required()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("admin.host '{}' is reached by other machines, and without keys "
                             "anybody there is an operator: give --api-keys FILE or --jwt-jwks, or "
                             "--admin-host 127.0.0.1",
                             settings.admin.host));
  }
  auto service = std::make_unique<AdminService>(settings, process, reach, clock, metrics);
  STATOR_CHECK(service->open());
  return service;
}

std::vector<frontend::RouteRow> list_admin_routes() {
  return list_routes_of_admin();
}

}  // namespace stator::app
