// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <utility>

#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/kv_publishing.h"
#include "stator/lab/fake_engine/meeting_rooms.h"
#include "stator/lab/fake_engine/plain_answer.h"
#include "stator/lab/fake_engine/sglang_info.h"
#include "stator/lab/fake_engine/side_channel_service.h"

namespace stator::fake_engine {
namespace {

using namespace std::chrono_literals;

constexpr Dialect kDialect = Dialect::kSglang;
constexpr Duration kArrivalPoll = 20ms;
constexpr int kPortTries = 20;
/// Health probes of gateways name this host; no leg waits for another then.
constexpr std::string_view kFakeBootstrapHost = "2.2.2.2";
constexpr std::string_view kFlushed =
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or "
    "waiting "
    "requests, the operation will not be performed.)\n";

constexpr std::array<DialectRoute, 18> kRoutes{{{"/generate", "POST, PUT"},
                                                {"/v1/completions", "POST"},
                                                {"/v1/chat/completions", "POST"},
                                                {"/health", "GET"},
                                                {"/health_generate", "GET"},
                                                {"/get_model_info", "GET"},
                                                {"/model_info", "GET"},
                                                {"/get_server_info", "GET"},
                                                {"/server_info", "GET"},
                                                {"/v1/loads", "GET"},
                                                {"/v1/models", "GET"},
                                                {"/metrics", "GET"},
                                                {"/flush_cache", "GET, POST"},
                                                {"/abort_request", "POST"},
                                                {"/release_memory_occupation", "GET, POST"},
                                                {"/resume_memory_occupation", "GET, POST"},
                                                {"/load_lora_adapter", "POST"},
                                                {"/unload_lora_adapter", "POST"}}};

/// The bootstrap server inside a prefill server: where decode servers ask who holds what.
class Bootstrap final : public net::HttpHandler {
 public:
  explicit Bootstrap(ServerContext& context) : context_(context) {}

  void on_request(net::HttpExchange& exchange) override {
    const std::string_view path = exchange.request().path();
    const std::string_view query = exchange.request().query();
    if (path == "/health") {
      exchange.respond(200, "text/plain", "OK");
    } else if (path == "/route" && exchange.request().method() == "GET") {
      respond_json(exchange, 200, query.contains("=-1") ? topology() : rank());
    } else if (path == "/route" || path == "/register_dp_rank") {
      exchange.respond(200, "text/plain", "OK");
    } else if (path == "/query_dp_ranks") {
      respond_json(exchange, 200, "{}");
    } else {
      exchange.respond(404, "text/plain", "404: Not Found");
    }
  }
  uint16_t side_port = 0;

 private:
  std::string rank() const {
    return fmt::format(R"({{"rank_ip":"{}","rank_port":{}}})", context_.config.handoff.host,
                       side_port);
  }
  std::string topology() const {
    return fmt::format(
        R"({{"attn_tp_size":1,"attn_cp_size":1,"dp_size":{},"pp_size":1,"page_size":{},)"
        R"("kv_cache_dtype":"auto","follow_bootstrap_room":true,"prefill_http_port":{}}})",
        context_.config.dp_size, context_.config.engine.block_size, context_.config.http.port);
  }
  ServerContext& context_;
};

class SglangService final : public DialectService {
 public:
  explicit SglangService(ServerContext& context) : context_(context), bootstrap_(context) {}

  Status open();

  void handle(net::HttpExchange& exchange, const Fault& fault) override;
  std::string error_body(int status, std::string_view message) const override {
    return plain_error_body(kDialect, status, message);
  }
  std::string announcement() const override {
    return context_.config.role == Role::kPrefill
               ? fmt::format(",\"bootstrap_port\":{}", bootstrap_port())
               : std::string();
  }
  void stop() override { channel_.reset(); }

 private:
  bool tell(std::string_view path, net::HttpExchange& exchange);
  void change(std::string_view path, net::HttpExchange& exchange);
  void generate(PlainRoute route, net::HttpExchange& exchange, const Fault& fault);
  PlainHooks legs_of(PlainRequest& request);
  PlainHooks prefill_leg(std::string room);
  PlainHooks decode_leg(RemoteHandoff handoff);
  void ask(uint64_t arrival);
  void on_asked(uint64_t arrival, ClaimAnswer answer);
  void abort(net::HttpExchange& exchange);
  uint16_t bootstrap_port() const {
    return bootstrap_http_ == nullptr ? context_.config.handoff.port : bootstrap_http_->port();
  }

  ServerContext& context_;
  PlainCounters counters_;
  SglangAdapters adapters_;
  MeetingRooms rooms_;
  Bootstrap bootstrap_;
  std::unique_ptr<net::HttpServer> bootstrap_http_;
  std::unique_ptr<SideChannel> channel_;
  FlatMap<std::string, net::Timer> patience_;  // of waiting prefill legs, by room

  /// A decode leg on its way to its prefill leg. As many as requests at most.
  struct Arrival {
    RemoteHandoff handoff;
    TimePoint deadline;
    std::function<void(uint64_t)> go;
    std::function<void(std::string)> fail;
    net::Timer again;
  };
  FlatMap<uint64_t, std::unique_ptr<Arrival>> arrivals_;
  uint64_t next_arrival_ = 1;
};

/// A prefill server listens for HTTP on its bootstrap port and for arrivals on the next one.
Status SglangService::open() {
  HandoffConfig handoff = context_.config.handoff;
  const auto answer = [this](const std::string& /*engine*/, const std::string& room) {
    return rooms_.arrive(room) ? ClaimOutcome::kFresh : ClaimOutcome::kStale;
  };
  if (context_.config.role != Role::kPrefill) {
    handoff.port = 0;
    STATOR_TRY(channel_, SideChannel::create(handoff, "sglang", answer, context_.shard.clock()));
    return {};
  }
  for (int attempt = 1;; ++attempt) {
    net::HttpServerConfig http = context_.config.http;
    http.port = context_.config.handoff.port;
    STATOR_TRY(bootstrap_http_,
               net::HttpServer::listen(context_.shard, http, bootstrap_, context_.shard.metrics()));
    handoff.port = static_cast<uint16_t>(bootstrap_http_->port() + 1);
    auto channel = SideChannel::create(handoff, "sglang", answer, context_.shard.clock());
    if (channel) {
      channel_ = std::move(*channel);
      bootstrap_.side_port = channel_->port();
      return {};
    }
    if (http.port != 0 || attempt == kPortTries) {
      return std::move(channel.error());
    }
    bootstrap_http_.reset();  // the next port is taken: another pair
  }
}

void SglangService::handle(net::HttpExchange& exchange, const Fault& fault) {
  if (refuse_route(exchange, kRoutes)) {
    return;
  }
  const std::string_view path = exchange.request().path();
  if (path == "/generate") {
    generate(PlainRoute::kSglangGenerate, exchange, fault);
  } else if (path == "/v1/completions") {
    generate(PlainRoute::kCompletions, exchange, fault);
  } else if (path == "/v1/chat/completions") {
    generate(PlainRoute::kChat, exchange, fault);
  } else if (!tell(path, exchange)) {
    change(path, exchange);
  }
}

/// What only reads; false: another path.
bool SglangService::tell(std::string_view path, net::HttpExchange& exchange) {
  if (path == "/health" || path == "/health_generate") {
    respond_empty(exchange);
  } else if (path == "/get_model_info" || path == "/model_info") {
    respond_json(exchange, 200, sglang_model_info(context_.config, context_.model.media));
  } else if (path == "/get_server_info" || path == "/server_info") {
    const std::string endpoint =
        context_.events == nullptr ? "" : context_.events->publisher(0).endpoint();
    respond_json(exchange, 200, sglang_server_info(context_, bootstrap_port(), endpoint));
  } else if (path == "/v1/loads") {
    respond_json(exchange, 200, sglang_loads(context_));
  } else if (path == "/v1/models") {
    respond_json(exchange, 200, sglang_models(context_, adapters_));
  } else if (path == "/metrics") {
    exchange.respond(200, "text/plain; version=0.0.4; charset=utf-8",
                     sglang_metrics(context_, counters_));
  } else {
    return false;
  }
  return true;
}

void SglangService::change(std::string_view path, net::HttpExchange& exchange) {
  if (path == "/flush_cache" && !context_.host.idle()) {
    exchange.respond(400, "", "Flush cache failed: requests are running.\n");
  } else if (path == "/flush_cache") {
    context_.host.reset_cache();
    exchange.respond(200, "", kFlushed);
  } else if (path == "/abort_request") {
    abort(exchange);
  } else if (path == "/release_memory_occupation") {
    context_.host.reset_cache();  // the KV memory is given up
    respond_empty(exchange);
  } else if (path == "/resume_memory_occupation") {
    respond_empty(exchange);
  } else {
    change_sglang_adapters(context_.config, adapters_, path, exchange);
  }
}

void SglangService::abort(net::HttpExchange& exchange) {
  const auto parsed = parse_body(exchange.request().body());
  if (read_flag(parsed.object, "abort_all")) {
    context_.answers.abort("");
  } else if (const auto id = read_text(parsed.object, "rid"); id && !id->empty()) {
    context_.answers.abort(*id);
  }
  respond_empty(exchange);
}

void SglangService::generate(PlainRoute route, net::HttpExchange& exchange, const Fault& fault) {
  auto request = read_plain_request(route, exchange.request().body(), plain_view_of(context_));
  if (!request) {
    respond_plain_error(exchange, kDialect, request.error());
    return;
  }
  if (find_foreign_token(request->spec, context_.model)) {
    std::raise(SIGKILL);  // as the real one: the process ends, the reply is empty
    return;
  }
  if (!apply_sglang_adapter(adapters_, *request)) {
    respond_plain_error(exchange, kDialect,
                        {.message = fmt::format("The following requested LoRA adapters are not "
                                                "loaded: {}",
                                                request->spec.owner.lora_name)});
    return;
  }
  if (request->spec.prompts.size() * request->spec.n > context_.config.choices_max) {
    respond_plain_error(exchange, kDialect, {.message = "too many choices"});
    return;
  }
  PlainHooks hooks = legs_of(*request);
  context_.answers.begin(make_plain_answer(context_, exchange, fault, std::move(*request),
                                           counters_, std::move(hooks)));
}

PlainHooks SglangService::legs_of(PlainRequest& request) {
  const auto room = read_integer(request.body, "bootstrap_room");
  const std::string host = read_text(request.body, "bootstrap_host").value_or("");
  const int64_t port = read_integer(request.body, "bootstrap_port").value_or(0);
  if (!room || host == kFakeBootstrapHost || context_.config.role == Role::kAggregated) {
    return {};
  }
  const std::string name = std::to_string(*room);
  if (context_.config.role == Role::kPrefill) {
    request.spec.stop.max_tokens = 1;
    return prefill_leg(name);
  }
  return decode_leg({.host = host,
                     .port = static_cast<uint16_t>(port + 1),
                     .engine_id = "sglang",
                     .request_id = name});
}

PlainHooks SglangService::prefill_leg(std::string room) {
  return {.before =
              [this, room = std::move(room)](const std::function<void(uint64_t)>& go,
                                             const std::function<void(std::string)>& fail) {
                const auto entered = rooms_.wait(room, [this, room, go] {
                  const bool posted = context_.shard.post([this, room, go] {
                    patience_.erase(room);
                    go(0);
                  });
                  static_cast<void>(posted);
                });
                if (entered == MeetingRooms::Entered::kDuplicate) {
                  std::raise(SIGKILL);  // two live requests in one room end the real engine
                } else if (entered == MeetingRooms::Entered::kFull) {
                  fail("too many prefill requests wait for their decode side");
                } else {
                  const Duration wait = context_.config.handoff.bootstrap_wait;
                  patience_[room] = context_.shard.after(wait, [this, room, fail] {
                    rooms_.give_up(room);
                    fail("Prefill bootstrap failed: the decode side did not come");
                  });
                }
              },
          .after = {}};
}

/// The prefill side may come later than the decode side: asks again until it is there.
void SglangService::ask(uint64_t id) {
  const auto found = arrivals_.find(id);
  if (found == arrivals_.end()) {
    return;
  }
  channel_->claim(found->second->handoff, [this, id](ClaimAnswer answer) {
    const bool posted = context_.shard.post([this, id, answer] { on_asked(id, answer); });
    static_cast<void>(posted);
  });
}

void SglangService::on_asked(uint64_t id, ClaimAnswer answer) {
  const auto found = arrivals_.find(id);
  if (found == arrivals_.end()) {
    return;
  }
  Arrival& arrival = *found->second;
  const bool arrived = answer.reachable && answer.outcome == ClaimOutcome::kFresh;
  if (!arrived && answer.reachable && context_.shard.now() < arrival.deadline) {
    arrival.again = context_.shard.after(kArrivalPoll, [this, id] { ask(id); });
    return;
  }
  const auto ended = std::move(found->second);
  arrivals_.erase(found);
  if (arrived) {
    ended->go(0);
  } else {
    ended->fail("Decode transfer failed: the prefill side did not come");
  }
}

PlainHooks SglangService::decode_leg(RemoteHandoff handoff) {
  return {.before =
              [this, handoff = std::move(handoff)](const std::function<void(uint64_t)>& go,
                                                   const std::function<void(std::string)>& fail) {
                auto arrival = std::make_unique<Arrival>();
                arrival->handoff = handoff;
                arrival->deadline = context_.shard.now() + context_.config.handoff.bootstrap_wait;
                arrival->go = go;
                arrival->fail = fail;
                const uint64_t id = next_arrival_++;
                arrivals_.emplace(id, std::move(arrival));
                ask(id);
              },
          .after = {}};
}

}  // namespace

Result<std::unique_ptr<DialectService>> make_sglang_service(ServerContext& context) {
  auto service = std::make_unique<SglangService>(context);
  STATOR_CHECK(service->open());
  return service;
}

}  // namespace stator::fake_engine
