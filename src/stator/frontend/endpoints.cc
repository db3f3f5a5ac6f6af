// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/endpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>

#include "stator/api/error_body.h"
#include "stator/api/response_body.h"
#include "stator/batches/batch_api.h"
#include "stator/frontend/answer.h"
#include "stator/frontend/busy_threshold.h"
#include "stator/frontend/kserve/kserve_routes.h"
#include "stator/frontend/openapi.h"
#include "stator/frontend/pooling/pool_routes.h"
#include "stator/frontend/receipt_pages.h"
#include "stator/frontend/stored_responses.h"
#include "stator/json/writer.h"
#include "stator/net/browser_guard.h"
#include "stator/protocols/anthropic/anthropic.h"
#include "stator/protocols/anthropic/models.h"
#include "stator/protocols/kserve/grpc_form.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {
namespace {

constexpr std::string_view kModels = "/v1/models";
constexpr std::string_view kModelsPrefix = "/v1/models/";
constexpr std::string_view kReceiptsPrefix = "/receipts/";
constexpr std::string_view kNewestReceipt = "last";
// For the largest JSON of an endpoint that does not generate, and for bodies that clients send
// along where none is wanted.
constexpr size_t kSmallBodyBytesMax = size_t{16} << 10;

/// Where two protocols have a path: whether the client is Anthropic's.
bool asks_anthropic(const net::HttpRequest& request) {
  return request.header(protocols::anthropic::kVersionHeader).has_value() &&
         (request.path() == kModels || request.path().starts_with(kModelsPrefix));
}

api::ErrorStyle style_of(const net::HttpRequest& request, const EndpointContext& context) {
  const api::ErrorStyle style{.overload_status = context.config.overload_status};
  return protocols::style_for(asks_anthropic(request) ? &protocols::anthropic::kProtocol : nullptr,
                              style);
}

void refuse(net::HttpExchange& exchange, const EndpointContext& context,
            const api::ApiError& error) {
  respond_error(exchange, error, style_of(exchange.request(), context), context.config.retry_after);
}

api::ModelEntry entry_of(const ServedModel& model, const FrontendConfig& config) {
  api::ModelEntry entry{.id = model.name,
                        .root = model.name,
                        .created_s = model.created_s,
                        .owned_by = "stator",
                        .context_window = model.context_length};
  if (config.context_window > 0) {
    entry.context_window = config.context_window;
  }
  if (config.max_output_tokens > 0) {
    entry.max_output_tokens = config.max_output_tokens;
  }
  return entry;
}

api::ModelEntry entry_of(const NamedModel& named, const FrontendConfig& config) {
  api::ModelEntry entry = entry_of(*named.model, config);
  if (!named.adapter.empty()) {
    entry.id = named.adapter;
    entry.root = named.adapter;
    entry.parent = named.model->name;
  }
  return entry;
}

void answer_models(net::HttpExchange& exchange, const EndpointContext& context) {
  const auto models = context.catalog.list_ready();
  std::vector<api::ModelEntry> entries;
  for (const auto& model : models) {
    entries.push_back(entry_of(*model, context.config));
  }
  const auto aliases = context.catalog.list_aliases();
  for (const auto& [alias, model] : aliases) {
    entries.push_back(entry_of(*model, context.config));
    entries.back().id = alias;
  }
  const auto adapters = context.catalog.list_adapters();
  for (const NamedModel& adapter : adapters) {
    entries.push_back(entry_of(adapter, context.config));
  }
  std::string body;
  if (asks_anthropic(exchange.request())) {
    protocols::anthropic::append_model_list(body, entries);
  } else {
    append_model_list(body, entries);
  }
  exchange.respond(200, kJson, body);
}

/// Without %XX: clients write the slash of "org/name" as %2F. What is no such escape stays.
std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 2);
    unsigned char byte = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    const bool escaped = text[i] == '%' && digits.size() == 2 && end.ec == std::errc() &&
                         end.ptr == digits.data() + 2;
    out += escaped ? static_cast<char>(byte) : text[i];
    i += escaped ? 2 : 0;
  }
  return out;
}

constexpr std::string_view kReadySuffix = "/ready";

/// Workers of a model in one namespace, by what they are for.
struct Roles {
  std::array<uint32_t, inference::kWorkerRoleCount> ready{};
  std::array<uint32_t, inference::kWorkerRoleCount> known{};

  bool has(inference::WorkerRole role) const { return ready[static_cast<size_t>(role)] > 0; }
};

void write_roles(json::Writer& json, const Roles& roles) {
  json.key("workers").begin_object();
  for (size_t role = 0; role < roles.known.size(); ++role) {
    json.key(to_string(static_cast<inference::WorkerRole>(role))).begin_object();
    json.key("ready").value(roles.ready[role]).key("known").value(roles.known[role]).end_object();
  }
  json.end_object();
  for (const bool present : {true, false}) {
    json.key(present ? "present" : "missing").begin_array();
    for (size_t role = 0; role < roles.known.size(); ++role) {
      if (present ? roles.ready[role] > 0 : roles.known[role] > 0 && roles.ready[role] == 0) {
        json.value(to_string(static_cast<inference::WorkerRole>(role)));
      }
    }
    json.end_array();
  }
}

/// Who serves a model, by namespace and by what they are for: what is there, and what is missing.
void answer_readiness(net::HttpExchange& exchange, const EndpointContext& context,
                      const ServedModel& model) {
  std::map<std::string, Roles> spaces;
  for (const auto& instance : context.catalog.instances()) {
    if (instance.model == model.name) {
      const auto role = static_cast<size_t>(instance.role);
      Roles& roles = spaces[instance.space];
      ++roles.known[role];
      roles.ready[role] += instance.standing == ModelCatalog::Standing::kReady ? 1 : 0;
    }
  }
  const bool is_ready = model.ready();
  std::string body;
  json::Writer json(body);
  json.begin_object().key("model").value(model.name).key("ready").value(is_ready);
  json.key("namespaces").begin_array();
  for (const auto& [space, roles] : spaces) {
    const bool serves = roles.has(inference::WorkerRole::kAggregated) ||
                        (roles.has(inference::WorkerRole::kDecode) && is_ready);
    json.begin_object().key("namespace").value(space).key("ready").value(serves);
    write_roles(json, roles);
    json.end_object();
  }
  json.end_array().end_object();
  exchange.respond(is_ready ? 200 : 503, kJson, body);
}

void answer_model(net::HttpExchange& exchange, const EndpointContext& context) {
  const std::string unescaped = unescape(exchange.request().path().substr(kModelsPrefix.size()));
  std::string_view name = unescaped;
  name.remove_prefix(name.starts_with('/') ? 1 : 0);
  const NamedModel named = context.catalog.resolve(name);
  if (named.model == nullptr && name.ends_with(kReadySuffix)) {
    name.remove_suffix(kReadySuffix.size());
    if (const NamedModel asked = context.catalog.resolve(name); asked.model != nullptr) {
      answer_readiness(exchange, context, *asked.model);
      return;
    }
  }
  if (named.model == nullptr) {
    refuse(exchange, context,
           {Error(Code::kNotFound, "model '" + unescaped + "' not found"), "model"});
    return;
  }
  std::string body;
  if (asks_anthropic(exchange.request())) {
    protocols::anthropic::append_model(body, entry_of(named, context.config));
  } else {
    append_model(body, entry_of(named, context.config));
  }
  exchange.respond(200, kJson, body);
}

std::string_view reason_of(const ModelCatalog::Instance& instance) {
  switch (instance.standing) {
    case ModelCatalog::Standing::kReady:
      return "";
    case ModelCatalog::Standing::kEngineLost:
      return "its engine does not answer";
    case ModelCatalog::Standing::kDraining:
      return "it drains";
    case ModelCatalog::Standing::kSuspended:
      return "it keeps failing";
  }
  return "";
}

/// For people who wonder why nothing is served: what is missing, and what to start.
std::string why_not_ready(std::span<const ModelCatalog::Instance> known) {
  if (known.empty()) {
    return "no worker has joined yet; start one with `stator worker`";
  }
  const auto ready =
      std::ranges::count(known, ModelCatalog::Standing::kReady, &ModelCatalog::Instance::standing);
  const auto prefill =
      std::ranges::count(known, inference::WorkerRole::kPrefill, &ModelCatalog::Instance::role);
  if (prefill == std::ssize(known)) {
    return "all workers only compute prompts (worker.role prefill); start one that answers, with "
           "--role decode or aggregated";
  }
  if (ready > 0 && prefill == 0) {
    return "no worker computes prompts (worker.role decode); start one with --role prefill or "
           "aggregated";
  }
  const auto& first = *std::ranges::find_if(known, [](const ModelCatalog::Instance& instance) {
    return instance.role != inference::WorkerRole::kPrefill;
  });
  const std::string_view reason = reason_of(first);
  return fmt::format("none of {} workers takes new work: worker {} ({}): {}", known.size(),
                     first.worker.value(), first.place,
                     reason.empty() ? "no prefill worker takes prompts for it" : reason);
}

/// Whether the question was about a model that cannot be asked now, and is answered.
bool refused_for_model(net::HttpExchange& exchange, const EndpointContext& context) {
  constexpr std::string_view kModel = "model=";
  const std::string_view query = exchange.request().query();
  if (!query.starts_with(kModel)) {
    return false;
  }
  const std::string name = unescape(query.substr(kModel.size()));
  const NamedModel named = context.catalog.resolve(name);
  if (named.model == nullptr) {
    refuse(exchange, context, {Error(Code::kNotFound, "model '" + name + "' not found"), "model"});
    return true;
  }
  if (named.model->ready()) {
    return false;
  }
  std::string body;
  api::append_not_ready_body(body, "waiting_for_workers", "no worker of the model takes work");
  exchange.respond(503, kJson, body);
  return true;
}

void answer_health(net::HttpExchange& exchange, const EndpointContext& context) {
  if (refused_for_model(exchange, context)) {
    return;
  }
  const auto known = context.catalog.instances();
  std::string body;
  const bool leaving = context.stage != Stage::kServing;
  if (leaving || !context.catalog.takes_work()) {
    api::append_not_ready_body(body, leaving ? "draining" : "waiting_for_workers",
                               leaving ? "shutting down" : why_not_ready(known));
    exchange.respond(503, kJson, body);
    return;
  }
  std::vector<std::string_view> endpoints = {"/v1/chat/completions", "/v1/completions", "/tokenize",
                                             "/detokenize"};
  for (const protocols::Route& route : protocols::routes()) {
    endpoints.push_back(route.path);
  }
  for (const PoolRoute& route : kPoolRoutes) {
    endpoints.push_back(route.path);
  }
  std::vector<api::HealthyInstance> instances;
  if (context.shows_details) {
    for (const auto& instance : known) {
      instances.push_back({instance.model, instance.worker, instance.place, reason_of(instance)});
    }
  }
  append_healthy_body(body, endpoints, instances);
  exchange.respond(200, kJson, body);
}

/// The same question as /health, answered for load balancers.
void answer_ready(net::HttpExchange& exchange, const EndpointContext& context) {
  std::string body;
  if (context.stage == Stage::kServing && context.catalog.takes_work()) {
    exchange.respond(200, kJson, R"({"status":"ready"})");
    return;
  }
  const bool leaving = context.stage != Stage::kServing;
  api::append_not_ready_body(
      body, leaving ? "draining" : "waiting_for_workers",
      leaving ? "shutting down" : why_not_ready(context.catalog.instances()));
  exchange.respond(503, kJson, body);
}

void answer_version(net::HttpExchange& exchange, const EndpointContext& /*context*/) {
  exchange.respond(200, kJson, R"({"version":")" STATOR_VERSION R"("})");
}

/// What clients of Hugging Face's servers ask first: of the one model, or of the first by name.
void answer_info(net::HttpExchange& exchange, const EndpointContext& context) {
  const auto models = context.catalog.list_ready();
  if (models.empty()) {
    refuse(exchange, context, Error(Code::kUnavailable, "no model is ready yet, retry"));
    return;
  }
  const ServedModel& model = *models.front();
  std::string body;
  json::Writer json(body);
  json.begin_object().key("model_id").value(model.name).key("model_sha").null();
  json.key("model_dtype").value("auto").key("model_type").begin_object();
  const inference::PoolTasks tasks = model.pool.tasks;
  if (!model.pool.generates && tasks.has(inference::PoolTask::kEmbed)) {
    json.key("embedding").begin_object().key("pooling").value("auto").end_object();
  } else if (!model.pool.generates && tasks.has(inference::PoolTask::kScore)) {
    json.key("reranker").begin_object().end_object();
  } else if (!model.pool.generates) {
    json.key("classifier").begin_object().end_object();
  }
  json.end_object().key("max_concurrent_requests").value(context.config.inflight_max);
  json.key("max_input_length").value(model.context_length);
  json.key("max_input_tokens").value(model.context_length);
  json.key("max_total_tokens").value(model.context_length);
  json.key("max_client_batch_size").value(api::kMaxPoolInputs);
  json.key("version").value(STATOR_VERSION).key("router").value("stator").end_object();
  exchange.respond(200, kJson, body);
}

void answer_openapi(net::HttpExchange& exchange, const EndpointContext& /*context*/) {
  static const std::string document = make_openapi(list_routes());
  exchange.respond(200, kJson, document);
}

void answer_docs(net::HttpExchange& exchange, const EndpointContext& /*context*/) {
  static const std::string page = make_docs_page(list_routes());
  exchange.respond(200, "text/html; charset=utf-8", page);
}

void answer_live(net::HttpExchange& exchange, const EndpointContext& context) {
  std::string body;
  const bool stopping = context.stage == Stage::kStopping;
  append_live_body(body, stopping ? api::Liveness::kShuttingDown : api::Liveness::kLive);
  exchange.respond(stopping ? 503 : 200, kJson, body);
}

void answer_metrics(net::HttpExchange& exchange, const EndpointContext& context) {
  const auto format = Metrics::format_for(exchange.request().header("accept").value_or(""));
  exchange.respond(200, Metrics::content_type(format), context.metrics.render(format));
}

void answer_receipt(net::HttpExchange& exchange, const EndpointContext& context) {
  std::string_view id = exchange.request().path().substr(kReceiptsPrefix.size());
  for (const std::string_view prefix : {"chatcmpl-", "cmpl-"}) {
    id.remove_prefix(id.starts_with(prefix) ? prefix.size() : 0);
  }
  const std::string of_protocol = protocols::request_id_of(id);
  id = of_protocol.empty() ? id : std::string_view(of_protocol);
  if (id == kNewestReceipt && !context.client_is_local && !context.may_see_newest) {
    // Whose request it was nobody knows: strangers need an id, which only its client was given.
    refuse(exchange, context,
           Error(Code::kPermissionDenied,
                 "the newest receipt is for clients on the frontend's own host; elsewhere ask by "
                 "the request's id"));
    return;
  }
  const auto receipt = context.receipts.find(id);
  if (!receipt) {
    refuse(exchange, context,
           Error(Code::kNotFound, "no routing receipt for '" + std::string(id) +
                                      "': only the last 1024 decisions are kept"));
    return;
  }
  const bool as_text = exchange.request().query() == "format=text";
  const ReceiptContext pages{context.catalog, context.receipts, context.findings};
  exchange.respond(200, as_text ? "text/plain; charset=utf-8" : kJson,
                   as_text ? receipt_text(*receipt, pages) : receipt_json(*receipt, pages));
}

void answer_get_thresholds(net::HttpExchange& exchange, const EndpointContext& context) {
  exchange.respond(200, kJson, render_busy_thresholds(context.catalog));
}

/// Whether a request may change something: it says that it is JSON, which no form of a page can,
/// and comes from no page that is not allowed to.
Status check_change(const net::HttpRequest& request, const FrontendConfig& config) {
  if (!is_json_content_type(request)) {
    return Error(Code::kUnsupportedMedia, "send the body as Content-Type: application/json");
  }
  return net::check_may_change(request, {.cors_origins = config.http.cors_origins,
                                         .allowed_hosts = config.http.allowed_hosts});
}

void answer_set_thresholds(net::HttpExchange& exchange, const EndpointContext& context) {
  if (Status may = check_change(exchange.request(), context.config); !may) {
    refuse(exchange, context, std::move(may.error()));
    return;
  }
  auto body = set_busy_thresholds(context.catalog, exchange.request().body());
  if (!body) {
    refuse(exchange, context, std::move(body.error()));
    return;
  }
  exchange.respond(200, kJson, *body);
}

using access::Role;

struct Route {
  std::string_view method;
  std::string_view path;
  bool is_prefix;
  void (*answer)(net::HttpExchange&, const EndpointContext&);
  enum class Body : uint8_t { kSmall, kText, kGeneration } body = Body::kSmall;
  access::Role role = access::Role::kUser;
  Plane plane = Plane::kPublic;
};

constexpr std::string_view kBusyThreshold = "/busy_threshold";

constexpr auto kRoutes = std::to_array<Route>({
    {"GET", kModels, false, answer_models},
    {"GET", kModelsPrefix, true, answer_model},
    {"GET", "/health", false, answer_health, Route::Body::kSmall, Role::kAnyone, Plane::kBoth},
    {"GET", "/ready", false, answer_ready, Route::Body::kSmall, Role::kAnyone, Plane::kBoth},
    {"GET", "/ping", false, answer_ready, Route::Body::kSmall, Role::kAnyone, Plane::kPublic},
    {"GET", "/version", false, answer_version, Route::Body::kSmall, Role::kAnyone, Plane::kPublic},
    {"GET", "/info", false, answer_info},
    {"GET", "/docs", false, answer_docs, Route::Body::kSmall, Role::kAnyone, Plane::kPublic},
    {"GET", "/openapi.json", false, answer_openapi, Route::Body::kSmall, Role::kAnyone,
     Plane::kPublic},
    {"GET", "/live", false, answer_live, Route::Body::kSmall, Role::kAnyone, Plane::kBoth},
    {"GET", "/metrics", false, answer_metrics, Route::Body::kSmall, Role::kService, Plane::kAdmin},
    {"GET", kReceiptsPrefix, true, answer_receipt, Route::Body::kSmall, Role::kOperator,
     Plane::kAdmin},
    {"GET", kBusyThreshold, false, answer_get_thresholds, Route::Body::kSmall, Role::kOperator,
     Plane::kAdmin},
    {"POST", kBusyThreshold, false, answer_set_thresholds, Route::Body::kSmall, Role::kOperator,
     Plane::kAdmin},
    // These work on text and are the shard's; listed so that another method on them is a 405.
    {"POST", "/tokenize", false, nullptr, Route::Body::kText},
    {"POST", "/detokenize", false, nullptr, Route::Body::kText},
    {"POST", "/v1/chat/completions", false, nullptr, Route::Body::kGeneration},
    {"POST", "/v1/completions", false, nullptr, Route::Body::kGeneration},
});

bool path_matches(const Route& route, std::string_view path) {
  return route.is_prefix ? path.starts_with(route.path) && path.size() > route.path.size()
                         : path == route.path;
}

/// Protocols and pooling take posts only.
bool is_protocol_post(std::string_view method, std::string_view path) {
  return method == "POST" &&
         (protocols::find_route(path) != nullptr || find_pool_route(path).has_value());
}

/// For the Allow header, "GET, HEAD"; empty for a path nobody knows.
std::string allowed_methods(std::string_view path) {
  std::string methods;
  for (const Route& route : kRoutes) {
    if (path_matches(route, path)) {
      methods += methods.empty() ? "" : ", ";
      methods += route.method == "GET" ? "GET, HEAD" : route.method;
    }
  }
  if (protocols::find_route(path) != nullptr || find_pool_route(path)) {
    methods = "POST";
  }
  if (methods.empty()) {
    methods = StoredResponses::methods_of(path);
  }
  if (methods.empty()) {
    methods = batches::methods_of(path);
  }
  if (methods.empty()) {
    methods = kserve_methods_of(path);
  }
  return methods;
}

const Route* find_route(const net::HttpRequest& request) {
  const std::string_view method = request.method() == "HEAD" ? "GET" : request.method();
  const auto* const found = std::ranges::find_if(kRoutes, [&](const Route& route) {
    return route.method == method && path_matches(route, request.path());
  });
  return found == kRoutes.end() ? nullptr : found;
}

RouteAccess access_of(const Route& route) {
  return {.role = route.role,
          .plane = route.plane,
          .metered = route.body != Route::Body::kSmall && route.role == Role::kUser};
}

}  // namespace

std::string_view describe(Plane plane) {
  constexpr std::array<std::string_view, 3> kWords = {"public", "admin", "both"};
  return kWords[static_cast<size_t>(plane)];
}

RouteAccess find_access(const net::HttpRequest& request) {
  if (const Route* route = find_route(request)) {
    return access_of(*route);
  }
  // Another method on a known path is refused as the path itself would be.
  for (const Route& route : kRoutes) {
    if (path_matches(route, request.path())) {
      return {.role = route.role, .plane = route.plane};
    }
  }
  if (is_kserve_health(request.path())) {
    return {.role = Role::kAnyone, .plane = Plane::kBoth};
  }
  // What other tables serve, or nobody does.
  return {.role = Role::kUser,
          .plane = Plane::kBoth,
          .metered = request.method() == "POST" &&
                     (request.path().starts_with("/v1/") ||
                      (is_kserve_run(request.path()) && !is_kserve_stream(request.path())) ||
                      is_protocol_post("POST", request.path()))};
}

namespace {

/// Routes that stored responses and batches answer: a row for each method, as they say themselves.
void add_stored(std::vector<RouteRow>& rows) {
  constexpr std::array<std::string_view, 9> kPaths = {"/v1/responses/{id}",
                                                      "/v1/responses/{id}/cancel",
                                                      "/v1/responses/{id}/input_items",
                                                      "/v1/files",
                                                      "/v1/files/{id}",
                                                      "/v1/files/{id}/content",
                                                      "/v1/batches",
                                                      "/v1/batches/{id}",
                                                      "/v1/batches/{id}/cancel"};
  for (const std::string_view path : kPaths) {
    std::string_view methods = StoredResponses::methods_of(path);
    methods = methods.empty() ? batches::methods_of(path) : methods;
    for (const std::string_view method : {"GET", "POST", "DELETE"}) {
      if (methods.contains(method)) {
        rows.push_back({method, std::string(path), RouteAccess{.metered = method == "POST"}});
      }
    }
  }
}

}  // namespace

std::vector<RouteRow> list_routes() {
  std::vector<RouteRow> rows;
  for (const Route& route : kRoutes) {
    rows.push_back({route.method, std::string(route.path) + (route.is_prefix ? "{id}" : ""),
                    access_of(route)});
    if (route.path == kModelsPrefix) {
      rows.push_back({route.method, std::string(route.path) + "{id}/ready", access_of(route)});
    }
  }
  for (const protocols::Route& route : protocols::routes()) {
    rows.push_back({"POST", std::string(route.path), RouteAccess{.metered = true}});
  }
  for (const PoolRoute& route : kPoolRoutes) {
    rows.push_back({"POST", std::string(route.path), RouteAccess{.metered = true}});
  }
  add_stored(rows);
  add_kserve_routes(rows);
  return rows;
}

bool answer_endpoint(net::HttpExchange& exchange, const EndpointContext& context) {
  const net::HttpRequest& request = exchange.request();
  const std::string_view method = request.method() == "HEAD" ? "GET" : request.method();
  if (context.config.disable_admin_api && request.path() == kBusyThreshold) {
    std::string body;
    append_route_not_found(body, request.method(), request.path(), style_of(request, context));
    exchange.respond(404, kJson, body);
    return true;
  }
  for (const Route& route : kRoutes) {
    if (route.answer != nullptr && route.method == method && path_matches(route, request.path())) {
      route.answer(exchange, context);
      return true;
    }
  }
  return false;
}

namespace {

net::BodyRule rule_of(const net::HttpRequest& head, const FrontendConfig& config) {
  const std::string_view method = head.method() == "HEAD" ? "GET" : head.method();
  for (const Route& route : kRoutes) {
    if (route.method != method || !path_matches(route, head.path())) {
      continue;
    }
    switch (route.body) {
      case Route::Body::kGeneration:
        return {};
      case Route::Body::kText:
        return {.bytes_max = config.text_body_bytes_max};
      case Route::Body::kSmall:
        return {.bytes_max = kSmallBodyBytesMax};
    }
  }
  if (protocols::kserve::find_method(head.path())) {
    return {.in_pieces = true};
  }
  if (is_protocol_post(method, head.path()) || (method == "POST" && is_kserve_run(head.path()))) {
    return {};
  }
  if (method == "POST" && head.path() == "/v1/files") {
    return {.bytes_max = config.batches.file_bytes_max + kSmallBodyBytesMax};
  }
  const std::string methods = allowed_methods(head.path());
  if (methods.contains(method)) {
    return {.bytes_max = kSmallBodyBytesMax};
  }
  const bool known = !methods.empty();
  return {.bytes_max = kSmallBodyBytesMax,
          .status = known ? 405 : 404,
          .message = fmt::format("{} {} is not served here", head.method(), head.path())};
}

}  // namespace

net::BodyRule body_rule(const net::HttpRequest& head, const FrontendConfig& config) {
  if (const auto target = config.paths.target_of(head.target())) {
    return rule_of(net::HttpRequest(head.method(), *target), config);
  }
  return rule_of(head, config);
}

void answer_unknown_route(net::HttpExchange& exchange, const api::ErrorStyle& style) {
  const net::HttpRequest& request = exchange.request();
  const std::string methods = allowed_methods(request.path());
  std::string body;
  if (methods.empty()) {
    append_route_not_found(body, request.method(), request.path(), style);
    exchange.respond(404, kJson, body);
    return;
  }
  append_method_not_allowed(body, request.method(), request.path(), style);
  const net::HttpHeader allow{"allow", methods};
  exchange.respond(405, kJson, body, std::span(&allow, 1));
}

bool is_json_content_type(const net::HttpRequest& request) {
  const auto header = request.header("content-type");
  if (!header) {
    return false;
  }
  std::string type(header->substr(0, header->find(';')));
  std::erase(type, ' ');
  std::ranges::transform(type, type.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

}  // namespace stator::frontend
