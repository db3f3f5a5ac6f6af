// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/fake_server_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ranges>
#include <utility>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/answer.h"
#include "stator/lab/fake_engine/dialect_service.h"
#include "stator/lab/fake_engine/kv_publishing.h"

namespace stator::fake_engine {
namespace {

constexpr std::string_view kGarbage = "\x7f<html>\n{\"choices\": [{\"text\": \n\xff\xfe garbage";
constexpr int64_t kNoRestart = -1;

class Server final : public FakeServer, public net::HttpHandler {
 public:
  Server(FakeConfig config, std::shared_ptr<const FakeModel> model, Clock& clock, Metrics& metrics)
      : config_(std::move(config)),
        model_(std::move(model)),
        metrics_(metrics),
        random_(Random::from_entropy()),
        shards_(1, clock, metrics),
        answers_(shards_.shard(0), config_.requests_max,
                 metrics.counter("stator_fake_requests_refused_total",
                                 "requests refused because requests_max were open")),
        ready_at_(clock.now() + config_.startup_delay) {}
  ~Server() override;

  Status open(std::vector<Fault> faults);

  uint16_t port() const override { return http_->port(); }
  std::string announcement() const override;
  std::optional<Duration> restart_wanted() const override {
    const int64_t delay = restart_ns_.load();
    return delay == kNoRestart ? std::nullopt : std::optional(Duration(delay));
  }

  void on_request(net::HttpExchange& exchange) override;

 private:
  void handle_fault(net::HttpExchange& exchange);
  std::string list_faults() const;

  const FakeConfig config_;
  const std::shared_ptr<const FakeModel> model_;
  Metrics& metrics_;
  Random random_;
  PendingFaults faults_;
  net::ShardSet shards_;
  std::unique_ptr<KvPublishing> events_;
  std::unique_ptr<EngineHost> host_;
  AnswerBook answers_;
  std::optional<ServerContext> context_;
  std::unique_ptr<DialectService> dialect_;
  std::unique_ptr<net::HttpServer> http_;
  const TimePoint ready_at_;
  std::atomic<int64_t> restart_ns_{kNoRestart};
};

Server::~Server() {
  shards_.stop();  // from here on nothing runs on the loop, and posting to it is refused
  if (dialect_ != nullptr) {
    dialect_->stop();
  }
  http_.reset();
  answers_.clear();
  dialect_.reset();
  host_.reset();
}

Status Server::open(std::vector<Fault> faults) {
  net::Shard& shard = shards_.shard(0);
  for (Fault& fault : faults) {
    STATOR_CHECK(faults_.add(std::move(fault)));
  }
  STATOR_TRY(host_, EngineHost::create(config_, *model_, shard, metrics_));
  const bool publishes = config_.dialect == Dialect::kVllm || config_.dialect == Dialect::kSglang;
  if (config_.events.enabled && publishes) {
    STATOR_TRY(events_, KvPublishing::create(config_, faults_, shard.clock(), metrics_));
    host_->set_outlet(events_.get());
  }
  context_.emplace(
      ServerContext{.config = config_,
                    .model = *model_,
                    .shard = shard,
                    .host = *host_,
                    .faults = faults_,
                    .answers = answers_,
                    .random = random_,
                    .events = events_.get(),
                    .restart = [this](Duration delay) { restart_ns_.store(delay.count()); }});
  STATOR_TRY(dialect_, make_dialect_service(*context_));
  if (config_.events.enabled && dialect_->outlet() != nullptr) {
    host_->set_outlet(dialect_->outlet());
  }
  STATOR_CHECK(host_->start());
  STATOR_TRY(http_, net::HttpServer::listen(shard, config_.http, *this, metrics_));
  shards_.start();
  return {};
}

std::string Server::announcement() const {
  std::string out = fmt::format("\"port\":{},\"dialect\":\"{}\"", port(), name_of(config_.dialect));
  for (uint32_t rank = 0; events_ != nullptr && rank < events_->ranks(); ++rank) {
    out += fmt::format("{}{{\"endpoint\":\"{}\",\"replay_endpoint\":\"{}\"}}",
                       rank == 0 ? ",\"events\":[" : ",", events_->publisher(rank).endpoint(),
                       events_->publisher(rank).replay_endpoint());
  }
  return out + (events_ != nullptr ? "]" : "") + dialect_->announcement();
}

void Server::on_request(net::HttpExchange& exchange) {
  const std::string_view path = exchange.request().path();
  if (path == "/fault" || path.starts_with("/fault/")) {
    handle_fault(exchange);
    return;
  }
  if (shards_.shard(0).now() < ready_at_) {
    respond_json(exchange, 503, dialect_->error_body(503, "Loading model"));
    return;
  }
  const Fault fault = faults_.take_for_request(path);
  if (fault.kind == FaultKind::kStatus) {
    respond_json(exchange, fault.status, dialect_->error_body(fault.status, "injected fault"));
    return;
  }
  if (fault.kind == FaultKind::kGarbage) {
    respond_json(exchange, 200, kGarbage);
    return;
  }
  dialect_->handle(exchange, fault);
}

void Server::handle_fault(net::HttpExchange& exchange) {
  const std::string_view method = exchange.request().method();
  if (exchange.request().path() == "/fault/metrics") {
    exchange.respond(200, Metrics::kContentType, metrics_.render());
    return;
  }
  if (method == "POST") {
    auto fault = parse_fault(exchange.request().body());
    const Status added = fault ? faults_.add(std::move(*fault)) : Status(std::move(fault.error()));
    if (!added) {
      std::string out;
      json::Writer(out).begin_object().key("error").value(added.error().message()).end_object();
      respond_json(exchange, 400, out);
      return;
    }
  } else if (method == "DELETE") {
    faults_.clear();
  }
  if (events_ != nullptr) {
    events_->apply_faults();
  }
  dialect_->apply_faults();
  respond_json(exchange, 200, list_faults());
}

std::string Server::list_faults() const {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("faults").begin_array();
  for (const Fault& fault : faults_.waiting()) {
    json.begin_object().key("kind").value(name_of(fault.kind)).key("path").value(fault.path);
    json.key("after_tokens").value(fault.after_tokens).key("skip").value(fault.skip);
    json.key("times").value(fault.times).key("every").value(fault.every).end_object();
  }
  json.end_array().end_object();
  return out;
}

}  // namespace

void respond_empty(net::HttpExchange& exchange, int status) {
  exchange.respond(status, "", "");
}

void respond_json(net::HttpExchange& exchange, int status, std::string_view body) {
  exchange.respond(status, "application/json", body);
}

bool refuse_route(net::HttpExchange& exchange, std::span<const DialectRoute> routes) {
  const auto route = std::ranges::find(routes, exchange.request().path(), &DialectRoute::path);
  if (route == routes.end()) {
    respond_json(exchange, 404, R"({"detail":"Not Found"})");
    return true;
  }
  for (const auto method : std::views::split(route->methods, std::string_view(", "))) {
    if (std::string_view(method) == exchange.request().method()) {
      return false;
    }
  }
  const net::HttpHeader allow[] = {{"allow", route->methods}};
  exchange.respond(405, "application/json", R"({"detail":"Method Not Allowed"})", allow);
  return true;
}

std::optional<Dialect> find_dialect(std::string_view name) {
  for (const Dialect dialect :
       {Dialect::kVllm, Dialect::kSglang, Dialect::kTrtllm, Dialect::kLlamacpp}) {
    if (name_of(dialect) == name) {
      return dialect;
    }
  }
  return std::nullopt;
}

std::string_view name_of(Dialect dialect) {
  constexpr std::array<std::string_view, 4> kNames{"vllm", "sglang", "trtllm", "llamacpp"};
  return kNames[static_cast<size_t>(dialect)];
}

Result<std::unique_ptr<DialectService>> make_dialect_service(ServerContext& context) {
  switch (context.config.dialect) {
    case Dialect::kVllm:
      return make_vllm_service(context);
    case Dialect::kSglang:
      return make_sglang_service(context);
    case Dialect::kTrtllm:
      return make_trtllm_service(context);
    case Dialect::kLlamacpp:
      break;
  }
  return make_llamacpp_service(context);
}

Result<std::unique_ptr<FakeServer>> FakeServer::create(FakeConfig config,
                                                       std::shared_ptr<const FakeModel> model,
                                                       std::vector<Fault> faults, Clock& clock,
                                                       Metrics& metrics) {
  auto server = std::make_unique<Server>(std::move(config), std::move(model), clock, metrics);
  STATOR_CHECK(server->open(std::move(faults)));
  return server;
}

}  // namespace stator::fake_engine
