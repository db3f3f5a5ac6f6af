// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/shard_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/log.h"
#include "stator/frontend/pooling/pool_routes.h"
#include "stator/frontend/request_context.h"
#include "stator/frontend/request_id.h"
#include "stator/frontend/request_record.h"
#include "stator/frontend/responses_sockets.h"
#include "stator/frontend/text_routes.h"
#include "stator/net/client_origin.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;

// How often quiet and stuck streams are looked for; both limits are tens of seconds.
constexpr Duration kSweepInterval = 1s;
// How often routers' queues look for requests that waited too long.
constexpr Duration kTickInterval = 100ms;

// One constant label for models we do not serve: clients must not be able to make series.
constexpr std::string_view kUnknownModel = "unknown";

}  // namespace

ShardService::ShardService(net::Shard& shard, ShardEnvironment environment)
    : shard_(shard),
      environment_(environment),
      metrics_(environment.metrics, environment.config.metrics_prefix),
      meters_(environment.metrics, environment.config.metrics_prefix),
      texts_(shard.clock(), environment.metrics, environment.config.metrics_prefix),
      random_(Random::from_entropy()),
      requests_({.shard = shard,
                 .config = environment.config,
                 .catalog = environment.catalog,
                 .fleet = environment.fleet,
                 .metrics = metrics_,
                 .meters = meters_,
                 .texts = texts_,
                 .random = random_,
                 .compute = environment.compute,
                 .journals = environment.journals,
                 .answers = environment.answers,
                 .gauges = environment.worker_gauges}),
      preparation_(shard, environment.compute,
                   {.config = environment.config,
                    .catalog = environment.catalog,
                    .encoder = environment.encoder,
                    .responses = environment.responses,
                    .fetcher = environment.fetcher,
                    .media_bytes = environment.media_bytes},
                   *this),
      pooling_(shard,
               {.config = environment.config, .metrics = metrics_, .compute = environment.compute},
               requests_.lines()),
      stored_(shard, {environment.responses, environment.batches}, environment.config),
      kserve_({.shard = shard,
               .config = environment.config,
               .catalog = environment.catalog,
               .stage = environment.stage,
               .handler = *this}),
      sockets_(std::make_unique<ResponsesSockets>(
          ResponsesSockets::Environment{.shard = shard,
                                        .config = environment.config,
                                        .stage = environment.stage,
                                        .handler = *this})),
      resumption_(
          environment.journals == nullptr
              ? nullptr
              : std::make_unique<Resumption>(*environment.journals, shard, metrics_, *this)) {
  requests_.events().share_with(pooling_);
}

ShardService::~ShardService() = default;

void ShardService::start(session::WorkerPoolOptions options, discovery::Discovery& discovery,
                         session::Connector& connector) {
  requests_.connect(std::move(options), discovery, connector, environment_.metrics);
  schedule_sweep();
  schedule_tick();
}

void ShardService::stop() {
  sweep_timer_.cancel();
  tick_timer_.cancel();
  const Error stopping(Code::kUnavailable, "the server is shutting down, retry");
  kserve_.stop();
  sockets_->stop();
  preparation_.fail_all(stopping);
  if (resumption_ != nullptr) {
    resumption_->fail_all(stopping);
  }
  pooling_.stop(stopping);
  requests_.stop(stopping);
  stored_.stop();
  requests_.lines().stop();
}

size_t ShardService::active() const {
  return requests_.active() + preparation_.waiting() + pooling_.active() +
         (resumption_ == nullptr ? 0 : resumption_->waiting());
}

void ShardService::on_request(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  const Entrance* entrance = environment_.entrance;
  if (entrance != nullptr &&
      !(exchange.is_internal() ? entrance->admit_further(exchange, shard_.now())
                               : entrance->admit(exchange, Listener::kPublic, shard_.now()))) {
    return;
  }
  if (kserve_.answer(exchange) || sockets_->answer(exchange)) {
    return;
  }
  if (request.method() == "POST") {
    if (const auto route = find_text_route(request.path())) {
      handle_text(exchange, *route);
      return;
    }
  }
  if (stored_.answer(exchange)) {
    return;
  }
  const EndpointContext context{
      .config = environment_.config,
      .catalog = environment_.catalog,
      .receipts = environment_.receipts,
      .metrics = environment_.metrics,
      .findings = &environment_.fleet.findings(),
      .wall_now = shard_.clock().wall_now(),
      .stage = environment_.stage.load(std::memory_order_relaxed),
      .client_is_local = request.path().starts_with("/receipts/") && net::client_is_local(exchange),
      .may_see_newest = entrance != nullptr && entrance->knows_callers(),
      .shows_details = entrance == nullptr || entrance->shows_details(request)};
  if (!answer_endpoint(exchange, context)) {
    answer_unknown_route(exchange, error_style(protocols::find_protocol(request.path())));
  }
}

net::BodyRule ShardService::body_rule(const net::HttpRequest& head) const {
  net::BodyRule rule = frontend::body_rule(head, environment_.config);
  return environment_.entrance == nullptr ? rule
                                          : environment_.entrance->body_rule(head, std::move(rule));
}

std::string ShardService::refusal_body(const net::HttpRequest& head, int status,
                                       std::string_view message) const {
  const protocols::Protocol* protocol = protocols::find_protocol(head.path());
  if (protocol == nullptr) {
    return net::error_body(status, message);
  }
  std::string body;
  api::append_error_body(body, {.status = status, .message = message}, error_style(protocol));
  return body;
}

api::ErrorStyle ShardService::error_style(const protocols::Protocol* protocol) const {
  return protocols::style_for(protocol, {.overload_status = environment_.config.overload_status});
}

Status ShardService::admit(const net::HttpRequest& request) const {
  if (environment_.stage.load(std::memory_order_relaxed) == Stage::kStopping) {
    return Error(Code::kUnavailable, "the server is shutting down, retry elsewhere");
  }
  if (active() >= environment_.config.inflight_max) {
    return Error(Code::kOverloaded,
                 "too many requests in flight here (frontend.inflight_max), retry shortly");
  }
  if (!is_json_content_type(request)) {
    return Error(Code::kUnsupportedMedia, "send the body as Content-Type: application/json");
  }
  if (const auto encoding = request.header("content-encoding").value_or("identity");
      encoding != "identity") {
    return Error(Code::kUnsupportedMedia,
                 fmt::format("Content-Encoding: {} is not understood here: send the body as it is",
                             encoding.substr(0, 32)));
  }
  return {};
}

void ShardService::handle_text(net::HttpExchange& exchange, TextRoute route) {
  net::HttpRequest& request = exchange.request();
  std::string request_id = make_request_id(request, random_);
  if (Status admitted = admit(request); !admitted) {
    refuse(exchange, route, request_id, std::move(admitted.error()));
    return;
  }
  if (const auto wrong = check_metadata(request, environment_.config.metadata_header)) {
    refuse_metadata(exchange, route, request_id, *wrong);
    return;
  }
  audit_request(request, request_id);
  auto job = std::make_shared<PrepareJob>();
  job->route = route;
  job->body = request.take_body();
  job->body_lease = exchange.take_body_lease();
  job->http = request;
  job->request_id = std::move(request_id);
  job->wall_now = shard_.clock().wall_now();
  job->received = shard_.clock().now();
  if (resumption_ == nullptr || !resumption_->begin(exchange, job)) {
    prepare(exchange, std::move(job));
  }
}

void ShardService::prepare(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job) {
  meters_.preparing(1);
  preparation_.submit(exchange, std::move(job));
}

void ShardService::on_journal(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job) {
  prepare(exchange, std::move(job));
}

void ShardService::on_no_journal(net::HttpExchange& exchange, const PrepareJob& job, Error error) {
  refuse(exchange, job, std::move(error));
}

void ShardService::on_prepared(net::HttpExchange& exchange, PrepareJob& job) {
  meters_.preparing(-1);
  meters_.prepared(shard_.clock().now() - job.received);
  if (auto* plan = std::get_if<GenerationPlan>(&job.outcome)) {
    net::HttpExchange& out = stored_.place(exchange, plan->answer, job.http);
    requests_.run(out, std::move(*plan), job);
  } else if (auto* pool_plan = std::get_if<PoolPlan>(&job.outcome)) {
    pooling_.run(exchange, std::move(*pool_plan), job.received);
  } else if (const auto* body = std::get_if<std::string>(&job.outcome)) {
    exchange.respond(200, kJson, *body, request_id_headers(job.route, job.request_id));
  } else {
    refuse(exchange, job, std::get<api::ApiError>(job.outcome));
  }
}

void ShardService::on_client_left(const PrepareJob& job) {
  meters_.preparing(-1);
  metrics_.disconnected_clients.add();
  if (const auto endpoint = endpoint_of(job.route)) {
    // The job may still be with a thread (J1): what it knows of the model is not looked at.
    metrics_.refused(kUnknownModel, *endpoint, false, "cancelled");
  }
}

void ShardService::refuse(net::HttpExchange& exchange, const PrepareJob& job,
                          const api::ApiError& error) {
  note_refusal(job.http, job.request_id, error.error, job.model, job.stream);
  if (const auto endpoint = endpoint_of(job.route)) {
    const std::string_view model = job.model.empty() ? kUnknownModel : std::string_view(job.model);
    metrics_.refused(model, *endpoint, job.stream, FrontendMetrics::error_type(error.code()));
  }
  respond_error(exchange, error, error_style(job.route.protocol), environment_.config.retry_after,
                request_id_headers(job.route, job.request_id));
}

void ShardService::refuse(net::HttpExchange& exchange, const TextRoute& route,
                          std::string_view request_id, const api::ApiError& error) {
  note_refusal(exchange.request(), request_id, error.error);
  if (const auto endpoint = endpoint_of(route)) {
    const PeekedRequest peeked = peek_request(exchange.request().body(), environment_.catalog);
    metrics_.refused(peeked.model.empty() ? kUnknownModel : std::string_view(peeked.model),
                     *endpoint, peeked.stream, FrontendMetrics::error_type(error.code()));
  }
  respond_error(exchange, error, error_style(route.protocol), environment_.config.retry_after,
                request_id_headers(route, request_id));
}

/// No error of ours has this status.
void ShardService::refuse_metadata(net::HttpExchange& exchange, const TextRoute& route,
                                   std::string_view request_id, std::string_view message) {
  constexpr int kStatus = 431;
  const net::HttpRequest& request = exchange.request();
  note_refusal(request, request_id, Error(Code::kInvalidArgument, std::string(message)));
  if (const auto endpoint = endpoint_of(route)) {
    const PeekedRequest peeked = peek_request(request.body(), environment_.catalog);
    metrics_.refused(peeked.model.empty() ? kUnknownModel : std::string_view(peeked.model),
                     *endpoint, peeked.stream, "validation");
  }
  exchange.respond(kStatus, kJson, refusal_body(request, kStatus, message),
                   request_id_headers(route, request_id));
}

void ShardService::schedule_sweep() {
  sweep_timer_ = shard_.after(kSweepInterval, [this] {
    preparation_.sweep();
    pooling_.sweep();
    stored_.sweep();
    requests_.sweep(shard_.now());
    schedule_sweep();
  });
}

void ShardService::schedule_tick() {
  tick_due_ = shard_.clock().now() + kTickInterval;
  tick_timer_ = shard_.after(kTickInterval, [this] {
    meters_.loop_was_late(std::max(shard_.clock().now() - tick_due_, Duration::zero()));
    requests_.take_routed();
    environment_.catalog.tick();
    schedule_tick();
  });
}

}  // namespace stator::frontend
