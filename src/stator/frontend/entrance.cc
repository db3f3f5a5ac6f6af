// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/entrance.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "stator/api/error_body.h"
#include "stator/frontend/answer.h"
#include "stator/frontend/request_record.h"
#include "stator/json/writer.h"
#include "stator/net/grpc_exchange.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {
namespace {

using access::Caller;
using access::Role;

// Whatever is not generated is small; the rest of a body that is not wanted is not read.
constexpr size_t kStrangersBodyBytesMax = size_t{16} << 10;

Counter over_budget(Metrics& metrics, std::string_view limit) {
  return metrics.counter("stator_access_over_budget_total",
                         "requests answered with 429 because their tenant's budget was used up",
                         {{"limit", std::string(limit)}});
}

Duration round_up(Duration wait) {
  return std::chrono::ceil<std::chrono::seconds>(wait);
}

}  // namespace

Entrance::Entrance(const FrontendConfig& config, access::AccessService* access,
                   bool admin_elsewhere, Metrics& metrics, telemetry::Telemetry* telemetry)
    : config_(config),
      access_(access),
      telemetry_(telemetry),
      admin_elsewhere_(admin_elsewhere),
      denied_(metrics.counter("stator_access_denied_total",
                              "requests of known callers for what their role may not do")),
      over_requests_(over_budget(metrics, "requests_per_minute")),
      over_tokens_(over_budget(metrics, "tokens_per_minute")),
      over_concurrent_(over_budget(metrics, "concurrent")) {}

Result<Caller> Entrance::identify(const net::HttpRequest& request) const {
  if (access_ == nullptr || !access_->required()) {
    return Caller{.role = Role::kOperator};
  }
  return access_->authenticate(request);
}

Status Entrance::check_role(const net::HttpRequest& request, const RouteAccess& route,
                            const Caller& caller) const {
  if (caller.role >= route.role) {
    return {};
  }
  if (caller.role == Role::kAnyone) {
    return Error(Code::kUnauthenticated,
                 "an API key is needed: send it as Authorization: Bearer KEY or x-api-key: KEY");
  }
  return Error(Code::kPermissionDenied,
               fmt::format("{} {} is for the role {}; this key has the role {}", request.method(),
                           request.path(), describe(route.role), describe(caller.role)));
}

std::string Entrance::choose_tenant(const net::HttpRequest& request, const Caller& caller) const {
  const auto header = request.header("x-tenant-id");
  if (!header || header->empty() || !caller.may_route() || !config_.trusts_header_hints()) {
    return caller.tenant;
  }
  return std::string(*header);
}

void Entrance::refuse(net::HttpExchange& exchange, const Error& error, Duration retry_after) const {
  if (RequestRecord* record = record_of(exchange.request())) {
    record->facts.error_type = error.info().name;
    audit_refusal(exchange.request(), error);
  }
  if (exchange.takes_trailers() && net::is_grpc(exchange.request())) {
    net::GrpcExchange(exchange, 0).fail(error.info().http_status, error.message());
    return;
  }
  const api::ErrorStyle plain{.overload_status = config_.overload_status};
  respond_error(exchange, error.clone(),
                protocols::style_for(protocols::find_protocol(exchange.request().path()), plain),
                retry_after);
}

std::shared_ptr<RequestRecord> Entrance::make_record(net::HttpExchange& exchange,
                                                     TimePoint now) const {
  auto record = std::make_shared<RequestRecord>();
  record->access = access_;
  if (telemetry_ != nullptr) {
    record->telemetry = telemetry_;
    telemetry_->begin(record->facts, exchange.request(), now);
    record->facts.client = exchange.client_address();
  }
  return record;
}

void Entrance::audit_refusal(const net::HttpRequest& request, const Error& error) const {
  const RequestRecord* record = record_of(request);
  if (telemetry_ == nullptr || !telemetry_->audits() || record == nullptr) {
    return;
  }
  std::string members;
  json::Writer json(members);
  json.begin_object().key("method").value(request.method()).key("path").value(record->facts.path);
  json.key("status").value(error.info().http_status).key("client").value(record->facts.client);
  json.key("tenant").value(record->caller.tenant).key("role").value(describe(record->caller.role));
  json.key("key_id").value(record->caller.key_id).end_object();
  telemetry_->audit("refused", std::string_view(members).substr(1, members.size() - 2));
}

bool Entrance::admit(net::HttpExchange& exchange, Listener listener, TimePoint now) const {
  net::HttpRequest& request = exchange.request();
  config_.paths.apply(request);
  if (access_ == nullptr && telemetry_ == nullptr && !admin_elsewhere_) {
    return true;
  }
  const RouteAccess route = find_access(request);
  if (listener == Listener::kPublic && admin_elsewhere_ && route.plane == Plane::kAdmin) {
    request.set_notes(make_record(exchange, now));
    refuse(exchange,
           Error(Code::kNotFound,
                 fmt::format("Route not found: {} {}", request.method(), request.path())),
           {});
    return false;
  }
  if (access_ == nullptr && telemetry_ == nullptr) {
    return true;
  }
  if (!admit_role(exchange, route, now)) {
    return false;
  }
  RequestRecord& record = *record_of(request);
  record.may_route = record.caller.may_route();
  std::string tenant = choose_tenant(request, record.caller);
  if (access_ != nullptr && tenant != record.caller.tenant) {
    record.caller.budget = access_->tenant(tenant);
    record.caller.tenant = tenant;
  }
  record.facts.tenant = std::move(tenant);
  record.metered = route.metered;
  return !route.metered || enter_budget(exchange, record, now);
}

bool Entrance::admit_further(net::HttpExchange& exchange, TimePoint now) const {
  net::HttpRequest& request = exchange.request();
  const std::shared_ptr<net::RequestNotes> carrier = request.notes();
  const auto* outer = static_cast<const RequestRecord*>(carrier.get());
  if ((access_ == nullptr && telemetry_ == nullptr) || (outer != nullptr && outer->metered)) {
    return true;
  }
  auto record = make_record(exchange, now);
  if (outer != nullptr) {
    record->caller = outer->caller;
    record->may_route = outer->may_route;
    record->facts.path = outer->facts.path;
    record->facts.client = outer->facts.client;
    record->facts.role = outer->facts.role;
    record->facts.key_id = outer->facts.key_id;
    record->facts.tenant = outer->facts.tenant;
  } else {
    describe_line(request, *record);
  }
  record->metered = true;
  RequestRecord& entering = *record;
  request.set_notes(std::move(record));
  return enter_budget(exchange, entering, now);
}

/// A line of a batch runs for the batch's owner, who has no say in where.
void Entrance::describe_line(const net::HttpRequest& request, RequestRecord& record) const {
  const std::string owner(request.header("x-tenant-id").value_or(""));
  record.facts.client = "batch";
  record.facts.tenant = owner;
  record.caller.role = Role::kOperator;
  if (!knows_callers()) {
    return;
  }
  record.may_route = false;
  record.caller = {
      .role = Role::kUser, .tenant = owner, .key_id = {}, .budget = access_->tenant(owner)};
  record.facts.role = describe(Role::kUser);
  int32_t priority = 0;
  const std::string_view text = request.header("x-stator-request-priority").value_or("");
  if (std::from_chars(text.data(), text.data() + text.size(), priority).ec == std::errc()) {
    record.priority = priority;
  }
}

bool Entrance::admit_role(net::HttpExchange& exchange, const RouteAccess& route,
                          TimePoint now) const {
  net::HttpRequest& request = exchange.request();
  auto record = make_record(exchange, now);
  auto caller = identify(request);
  record->caller = caller ? std::move(*caller) : Caller{};
  if (knows_callers()) {
    record->facts.role = describe(record->caller.role);
    record->facts.key_id = record->caller.key_id;
    record->facts.tenant = record->caller.tenant;
  }
  const access::Caller who = record->caller;
  request.set_notes(std::move(record));
  if (!caller && route.role > Role::kAnyone) {
    refuse(exchange, caller.error(), {});
    return false;
  }
  if (Status may = check_role(request, route, who); !may) {
    denied_.add();
    refuse(exchange, may.error(), {});
    return false;
  }
  return true;
}

bool Entrance::enter_budget(net::HttpExchange& exchange, RequestRecord& record,
                            TimePoint now) const {
  const access::Caller& caller = record.caller;
  if (caller.budget == nullptr) {
    return true;
  }
  const auto entered = caller.budget->enter(now);
  if (entered) {
    record.lease = access::TenantLease(caller.budget);
    return true;
  }
  const std::string_view limit = entered.error().limit;
  const Counter& counter = limit == "concurrent"            ? over_concurrent_
                           : limit == "requests_per_minute" ? over_requests_
                                                            : over_tokens_;
  counter.add();
  const Duration wait = round_up(entered.error().wait);
  refuse(
      exchange,
      Error(Code::kRateLimited, fmt::format("tenant {} has used up its {}, retry in {} s",
                                            caller.tenant, limit, wait / std::chrono::seconds(1))),
      wait);
  return false;
}

net::BodyRule Entrance::body_rule(const net::HttpRequest& head, net::BodyRule rule) const {
  if (access_ == nullptr || !access_->required() || rule.bytes_max <= kStrangersBodyBytesMax) {
    return rule;
  }
  const auto caller = access_->authenticate(head);
  const Role role = caller ? caller->role : Role::kAnyone;
  net::HttpRequest known(head.method(), head.target());
  config_.paths.apply(known);
  if (role >= find_access(known).role) {
    return rule;
  }
  return {.bytes_max = kStrangersBodyBytesMax,
          .status = role == Role::kAnyone ? 401 : 403,
          .message = "large bodies are read from callers with a key that allows this only"};
}

bool Entrance::knows_callers() const {
  return access_ != nullptr && access_->required();
}

bool Entrance::shows_details(const net::HttpRequest& request) const {
  if (!knows_callers()) {
    return true;
  }
  const RequestRecord* record = record_of(request);
  return record != nullptr && record->caller.role >= Role::kService;
}

}  // namespace stator::frontend
