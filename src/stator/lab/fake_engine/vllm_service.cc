// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/vllm_service.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "stator/lab/fake_engine/vllm_answer.h"

namespace stator::fake_engine {
namespace {

/// In the order of VllmRoute.
constexpr std::array<DialectRoute, 3> kGenerating{{{"/v1/completions", "POST"},
                                                   {"/v1/chat/completions", "POST"},
                                                   {"/inference/v1/generate", "POST"}}};

class VllmService final : public DialectService {
 public:
  explicit VllmService(ServerContext& context) : context_(context) {
    const FakeConfig& config = context.config;
    state_.names = {config.model_name};
    state_.adapter_paths = {config.model_path};
    state_.fingerprint = "vllm-0.32.0-" + random_hex(context.random, 4);
    const std::string hex = random_hex(context.random, 16);
    state_.engine_id = fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4),
                                   hex.substr(12, 4), hex.substr(16, 4), hex.substr(20));
    state_.counters.resize(config.dp_size);
    const MutexLock lock(state_.desk_mutex);
    state_.open_handoffs = std::make_unique<OpenHandoffs>(
        config.engine.total_blocks, config.handoff.lease, config.handoff.open_max);
  }

  Status open_side_channel() {
    STATOR_TRY(state_.channel,
               SideChannel::create(
                   context_.config.handoff, state_.engine_id,
                   [this](const std::string& engine_id, const std::string& request_id) {
                     if (engine_id != state_.engine_id) {
                       return ClaimOutcome::kRefused;
                     }
                     const MutexLock lock(state_.desk_mutex);
                     return state_.open_handoffs->claim(request_id, context_.shard.clock().now());
                   },
                   context_.shard.clock()));
    return {};
  }

  void handle(net::HttpExchange& exchange, const Fault& fault) override;
  std::string error_body(int status, std::string_view message) const override {
    return vllm_error_body(
        {.status = status,
         .message = std::string(message),
         .type = status == 503 ? "ServiceUnavailableError" : "InternalServerError",
         .param = {}},
        context_.config.release);
  }
  void apply_faults() override {
    if (context_.faults.take_expire_handoffs()) {
      const MutexLock lock(state_.desk_mutex);
      state_.open_handoffs->expire_all();
    }
  }
  std::string announcement() const override {
    return fmt::format(",\"side_port\":{},\"engine_id\":\"{}\"", state_.channel->port(),
                       state_.engine_id);
  }
  void stop() override { state_.channel.reset(); }

 private:
  void generate(VllmRoute route, net::HttpExchange& exchange, const Fault& fault);

  ServerContext& context_;
  VllmState state_;
};

void VllmService::handle(net::HttpExchange& exchange, const Fault& fault) {
  const auto route = std::ranges::find(kGenerating, exchange.request().path(), &DialectRoute::path);
  if (route != kGenerating.end()) {
    if (!refuse_route(exchange, kGenerating)) {
      generate(static_cast<VllmRoute>(route - kGenerating.begin()), exchange, fault);
    }
    return;
  }
  if (!handle_vllm_info(context_, state_, exchange) &&
      !handle_vllm_admin(context_, state_, exchange)) {
    respond_json(exchange, 404, R"({"detail":"Not Found"})");
  }
}

void VllmService::generate(VllmRoute route, net::HttpExchange& exchange, const Fault& fault) {
  const FakeConfig& config = context_.config;
  if (route == VllmRoute::kGenerate && config.release == Release::kOld) {
    respond_json(exchange, 404, R"({"detail":"Not Found"})");
    return;
  }
  if (route == VllmRoute::kGenerate && !config.scale_out) {
    respond_error(exchange, context_,
                  {.status = 403,
                   .message = "Scale-out endpoints are disabled. Restart vllm serve with "
                              "--enable-scale-out to enable them.",
                   .type = "PermissionDeniedError",
                   .param = {}});
    return;
  }
  const net::HttpRequest& http = exchange.request();
  auto request = read_vllm_request(route, http.body(),
                                   {.dp_rank = http.header("x-data-parallel-rank"),
                                    .session_id = http.header("x-session-id"),
                                    .priority = http.header("x-vllm-priority")},
                                   view_of(context_, state_));
  if (!request) {
    respond_error(exchange, context_, request.error());
    return;
  }
  const size_t choices = request->spec.prompts.size() * request->spec.n;
  if (choices > config.choices_max) {
    respond_error(exchange, context_,
                  {.message = fmt::format("{} choices, this server takes at most {}", choices,
                                          config.choices_max),
                   .param = "n"});
    return;
  }
  context_.answers.begin(make_vllm_answer(context_, state_, exchange, fault, std::move(*request)));
}

}  // namespace

VllmModelView view_of(const ServerContext& context, const VllmState& state) {
  return {.model = context.model,
          .max_model_len = context.host.info().max_model_len,
          .dp_size = context.config.dp_size,
          .names = state.names,
          .now = context.shard.clock().wall_now()};
}

void respond_error(net::HttpExchange& exchange, const ServerContext& context,
                   const VllmError& error) {
  respond_json(exchange, error.status, vllm_error_body(error, context.config.release));
}

Result<std::unique_ptr<DialectService>> make_vllm_service(ServerContext& context) {
  auto service = std::make_unique<VllmService>(context);
  STATOR_CHECK(service->open_side_channel());
  return service;
}

}  // namespace stator::fake_engine
