// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "stator/core/hash.h"
#include "stator/core/mutex.h"
#include "stator/json/writer.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/plain_answer.h"
#include "stator/lab/fake_engine/side_channel_service.h"
#include "stator/lab/fake_engine/trtllm_events.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

constexpr Dialect kDialect = Dialect::kTrtllm;
constexpr size_t kEventsMax = 1'024;  // event_buffer_max_size of the real one's documentation
/// Unknown members are refused, as by the real server.
constexpr std::array<std::string_view, 46> kMembers = {"model",
                                                       "prompt",
                                                       "messages",
                                                       "max_tokens",
                                                       "max_completion_tokens",
                                                       "min_tokens",
                                                       "n",
                                                       "best_of",
                                                       "stream",
                                                       "stream_options",
                                                       "temperature",
                                                       "top_p",
                                                       "top_k",
                                                       "min_p",
                                                       "top_p_min",
                                                       "seed",
                                                       "stop",
                                                       "stop_token_ids",
                                                       "include_stop_str_in_output",
                                                       "ignore_eos",
                                                       "logprobs",
                                                       "top_logprobs",
                                                       "prompt_logprobs",
                                                       "logit_bias",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "repetition_penalty",
                                                       "length_penalty",
                                                       "echo",
                                                       "suffix",
                                                       "user",
                                                       "use_beam_search",
                                                       "early_stopping",
                                                       "skip_special_tokens",
                                                       "spaces_between_special_tokens",
                                                       "truncate_prompt_tokens",
                                                       "add_special_tokens",
                                                       "response_format",
                                                       "lora_request",
                                                       "disaggregated_params",
                                                       "detokenize",
                                                       "cache_salt",
                                                       "tools",
                                                       "tool_choice",
                                                       "add_generation_prompt",
                                                       "chat_template_kwargs"};

constexpr std::array<DialectRoute, 9> kRoutes{{{"/v1/completions", "POST"},
                                               {"/v1/chat/completions", "POST"},
                                               {"/kv_cache_events", "POST"},
                                               {"/health", "GET"},
                                               {"/health_generate", "GET"},
                                               {"/version", "GET"},
                                               {"/v1/models", "GET"},
                                               {"/metrics", "GET"},
                                               {"/server_info", "GET"}}};

/// trtllm-serve: events and statistics that reading drains, opaque hand-offs.
class TrtllmService final : public DialectService {
 public:
  explicit TrtllmService(ServerContext& context)
      : context_(context),
        events_(context.config.dp_size, context.config.engine.total_blocks,
                context.model.max_model_len, kEventsMax),
        engine_id_(random_hex(context.random, 8)),
        open_handoffs_(context.config.engine.total_blocks, context.config.handoff.lease,
                       context.config.handoff.open_max) {}

  Status open() {
    STATOR_TRY(channel_, SideChannel::create(
                             context_.config.handoff, engine_id_,
                             [this](const std::string& engine, const std::string& request) {
                               if (engine != engine_id_) {
                                 return ClaimOutcome::kRefused;
                               }
                               const MutexLock lock(mutex_);
                               return open_handoffs_.claim(request, context_.shard.clock().now());
                             },
                             context_.shard.clock()));
    return {};
  }

  EventOutlet* outlet() override { return &events_; }
  std::string error_body(int status, std::string_view message) const override {
    return plain_error_body(kDialect, status, message);
  }
  void apply_faults() override {
    if (context_.faults.take_expire_handoffs()) {
      const MutexLock lock(mutex_);
      open_handoffs_.expire_all();
    }
  }
  void stop() override { channel_.reset(); }

  void handle(net::HttpExchange& exchange, const Fault& fault) override {
    if (refuse_route(exchange, kRoutes)) {
      return;
    }
    const std::string_view path = exchange.request().path();
    if (path == "/v1/completions") {
      generate(PlainRoute::kCompletions, exchange, fault);
    } else if (path == "/v1/chat/completions") {
      generate(PlainRoute::kChat, exchange, fault);
    } else if (path == "/kv_cache_events") {
      respond_json(exchange, 200, events_.drain());
    } else {
      tell(path, exchange);
    }
  }

 private:
  void tell(std::string_view path, net::HttpExchange& exchange) {
    if (path == "/version") {
      respond_json(exchange, 200, R"({"version":"1.3.0rc0"})");
    } else if (path == "/v1/models") {
      respond_json(exchange, 200, models());
    } else if (path == "/metrics") {
      respond_json(exchange, 200, statistics());
    } else if (path == "/server_info") {
      respond_json(exchange, 200, R"({"disaggregated_params":{}})");
    } else {
      respond_empty(exchange);  // health
    }
  }

  std::string models() const {
    std::string out;
    json::Writer json(out);
    json.begin_object().key("object").value("list").key("data").begin_array().begin_object();
    json.key("id").value(context_.config.model_name).key("object").value("model");
    json.key("created").value(unix_seconds(context_.shard.clock().wall_now()));
    json.key("owned_by").value("tensorrt_llm").end_object().end_array().end_object();
    return out;
  }

  /// One record if anything was generated since the last read: the list is drained by reading.
  std::string statistics() {
    if (counters_.generation_tokens == reported_tokens_) {
      return "[]";
    }
    reported_tokens_ = counters_.generation_tokens;
    const auto load = context_.host.load(0);
    const auto& info = context_.host.info();
    std::string out;
    json::Writer json(out);
    json.begin_array().begin_object().key("iter").value(++iteration_);
    json.key("iterLatencyMS").value(context_.config.timing->decode_ms({.decode_requests = 1}));
    json.key("numActiveRequests").value(load.running).key("numQueuedRequests").value(load.waiting);
    json.key("maxNumActiveRequests").value(info.max_num_seqs).key("gpuMemUsage").value(0);
    json.key("kvCacheStats").begin_object().key("maxNumBlocks").value(load.kv_total_blocks);
    json.key("freeNumBlocks").value(load.kv_total_blocks - load.kv_used_blocks);
    json.key("usedNumBlocks").value(load.kv_used_blocks).key("tokensPerBlock");
    json.value(info.block_size).key("reusedBlocks").value(load.prefix_hit_tokens / info.block_size);
    const uint64_t missed = load.prefix_query_tokens - load.prefix_hit_tokens;
    json.key("missedBlocks").value(missed / info.block_size).key("cacheHitRate");
    const double queried = static_cast<double>(std::max<uint64_t>(load.prefix_query_tokens, 1));
    json.value(static_cast<double>(load.prefix_hit_tokens) / queried).end_object();
    json.key("inflightBatchingStats").begin_object().key("numScheduledRequests");
    json.value(load.running).key("numContextRequests").value(0);
    json.key("numGenRequests").value(load.running).key("numPausedRequests").value(0);
    json.key("numCtxTokens").value(0).end_object().end_object().end_array();
    return out;
  }

  void generate(PlainRoute route, net::HttpExchange& exchange, const Fault& fault) {
    auto request = read_plain_request(route, exchange.request().body(), plain_view_of(context_));
    if (request) {
      for (const auto& [key, value] : request->body.members()) {
        if (std::ranges::find(kMembers, key) == kMembers.end()) {
          request = std::unexpected(PlainError{
              .message = fmt::format("[{{'type': 'extra_forbidden', 'loc': ('body', '{}'), 'msg': "
                                     "'Extra inputs are not permitted'}}]",
                                     key)});
          break;
        }
      }
    }
    if (request) {
      if (const auto foreign = find_foreign_token(request->spec, context_.model)) {
        request = std::unexpected(
            PlainError{.message = fmt::format("Token ID {} is out of vocabulary range", *foreign)});
      }
    }
    if (!request) {
      respond_plain_error(exchange, kDialect, request.error());
      return;
    }
    PlainHooks hooks = legs_of(*request);
    context_.answers.begin(make_plain_answer(context_, exchange, fault, std::move(*request),
                                             counters_, std::move(hooks)));
  }

  PlainHooks legs_of(PlainRequest& request) {
    const auto* member = find_member(request.body, "disaggregated_params");
    if (member == nullptr || !member->is_object()) {
      return {};
    }
    const json::Value& params = *member;
    if (read_text(params, "request_type").value_or("") == "context_only") {
      request.spec.stop.max_tokens = 1;
      const auto tokens = static_cast<uint32_t>(request.spec.prompts.front().size());
      const auto wanted = read_integer(params, "disagg_request_id");
      return {.before = {},
              .after = [this, tokens, wanted](PlainState& state) { offer(tokens, wanted, state); }};
    }
    return {
        .before = [this, params](
                      const std::function<void(uint64_t)>& go,
                      const std::function<void(std::string)>& fail) { claim(params, go, fail); },
        .after = {}};
  }

  void offer(uint32_t tokens, std::optional<int64_t> wanted, PlainState& state) {
    const uint64_t id = next_context_++;
    const uint32_t size = context_.config.engine.block_size;
    {
      const MutexLock lock(mutex_);
      open_handoffs_.offer(std::to_string(id), (tokens + size - 1) / size, context_.shard.now());
    }
    std::string out;
    json::Writer json(out);
    json.begin_object().key("request_type").value("context_only");
    json.key("first_gen_tokens").begin_array().value(state.choices[0].tokens.front()).end_array();
    json.key("ctx_request_id").value(id);
    json.key("encoded_opaque_state").value("c3RhdG9yLWZha2U=");  // "stator-fake"
    json.key("draft_tokens").null().key("disagg_request_id");
    wanted ? json.value(*wanted) : json.null();
    json.key("ctx_dp_rank").value(0).key("ctx_info_endpoint");
    json.value(
        fmt::format("{}@tcp://{}:{}", engine_id_, context_.config.handoff.host, channel_->port()));
    json.key("schedule_style").value(0).end_object();
    state.handoff_json = std::move(out);
  }

  /// `ctx_info_endpoint` names the context server: engine@tcp://host:port.
  void claim(const json::Value& params, const std::function<void(uint64_t)>& go,
             const std::function<void(std::string)>& fail) {
    const std::string endpoint = read_text(params, "ctx_info_endpoint").value_or("");
    const size_t at = endpoint.find("@tcp://");
    const size_t colon = endpoint.rfind(':');
    if (at == std::string::npos || colon <= at + 7) {
      fail("disaggregated_params: ctx_info_endpoint does not name a context server");
      return;
    }
    uint16_t port = 0;
    std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
    const std::string request = std::to_string(read_integer(params, "ctx_request_id").value_or(-1));
    channel_->claim({.host = endpoint.substr(at + 7, colon - at - 7),
                     .port = port,
                     .engine_id = endpoint.substr(0, at),
                     .request_id = request},
                    [&shard = context_.shard, go, fail, request](ClaimAnswer answer) {
                      const bool posted = shard.post([go, fail, request, answer] {
                        if (!answer.reachable || answer.outcome == ClaimOutcome::kRefused) {
                          fail("the context server did not answer");
                        } else if (answer.outcome == ClaimOutcome::kStale) {
                          go(xxh3_64(std::string_view(request)) | 1U);
                        } else {
                          go(0);
                        }
                      });
                      static_cast<void>(posted);
                    });
  }

  ServerContext& context_;
  PlainCounters counters_;
  TrtllmEvents events_;
  const std::string engine_id_;
  uint64_t next_context_ = 1;
  uint64_t iteration_ = 0;
  uint64_t reported_tokens_ = 0;
  Mutex mutex_;  // the side channel's thread asks for hand-offs, too
  OpenHandoffs open_handoffs_ STATOR_GUARDED_BY(mutex_);
  std::unique_ptr<SideChannel> channel_;
};

}  // namespace

Result<std::unique_ptr<DialectService>> make_trtllm_service(ServerContext& context) {
  auto service = std::make_unique<TrtllmService>(context);
  STATOR_CHECK(service->open());
  return service;
}

}  // namespace stator::fake_engine
