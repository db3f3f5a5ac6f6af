// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/plain_answer.h"
#include "stator/lab/fake_engine/prom_text.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

constexpr Dialect kDialect = Dialect::kLlamacpp;

/// llama-server: a fixed number of slots, no KV events.
class LlamacppService final : public DialectService {
 public:
  explicit LlamacppService(ServerContext& context) : context_(context) {}

  std::string error_body(int status, std::string_view message) const override {
    return plain_error_body(kDialect, status, message);
  }
  void handle(net::HttpExchange& exchange, const Fault& fault) override {
    const std::string_view path = exchange.request().path();
    const bool post = exchange.request().method() == "POST";
    if (post && (path == "/completion" || path == "/completions")) {
      generate(PlainRoute::kLlamaCompletion, exchange, fault);
    } else if (post && path == "/v1/completions") {
      generate(PlainRoute::kCompletions, exchange, fault);
    } else if (post && path == "/v1/chat/completions") {
      generate(PlainRoute::kChat, exchange, fault);
    } else if (post ? !handle_post(path, exchange) : !handle_get(path, exchange)) {
      respond_plain_error(exchange, kDialect, {.status = 404, .message = "File Not Found"});
    }
  }

 private:
  uint32_t slots() const { return context_.host.info().max_num_seqs; }
  uint32_t slot_context() const { return context_.host.info().max_model_len; }

  void generate(PlainRoute route, net::HttpExchange& exchange, const Fault& fault) {
    auto request = read_plain_request(route, exchange.request().body(), plain_view_of(context_));
    if (request) {
      if (const auto foreign = find_foreign_token(request->spec, context_.model)) {
        request = std::unexpected(
            PlainError{.message = fmt::format("Prompt contains invalid tokens: {}", *foreign)});
      }
    }
    if (!request) {
      respond_plain_error(exchange, kDialect, request.error());
      return;
    }
    context_.answers.begin(
        make_plain_answer(context_, exchange, fault, std::move(*request), counters_, {}));
  }

  bool handle_get(std::string_view path, net::HttpExchange& exchange) {
    if (path == "/health" || path == "/v1/health") {
      respond_json(exchange, 200, R"({"status":"ok"})");
    } else if (path == "/props") {
      respond_json(exchange, 200, props());
    } else if (path == "/slots") {
      respond_json(exchange, 200, slots_body());
    } else if (path == "/v1/models" || path == "/models") {
      respond_json(exchange, 200, models());
    } else if (path == "/lora-adapters") {
      respond_json(exchange, 200, "[]");
    } else if (path == "/metrics") {
      exchange.respond(200, "text/plain; version=0.0.4", metrics());
    } else {
      return false;
    }
    return true;
  }

  bool handle_post(std::string_view path, net::HttpExchange& exchange) {
    const auto parsed = parse_body(exchange.request().body());
    const bool known = path == "/tokenize" || path == "/detokenize" || path == "/apply-template";
    if (known && !parsed.ok) {
      respond_plain_error(exchange, kDialect, {.message = "the body is not a JSON object"});
      return true;
    }
    std::string out;
    json::Writer json(out);
    json.begin_object();
    if (path == "/tokenize") {
      const auto ids = encode_text(context_.model, read_text(parsed.object, "content").value_or(""),
                                   read_flag(parsed.object, "add_special"));
      json.key("tokens").begin_array();
      for (const TokenId id : ids ? *ids : std::vector<TokenId>()) {
        json.value(id);
      }
      json.end_array();
    } else if (path == "/detokenize") {
      const auto* tokens = find_member(parsed.object, "tokens");
      const auto ids = tokens == nullptr ? std::nullopt : read_ids(*tokens);
      json.key("content").value(decode_text(context_.model, ids.value_or(std::vector<TokenId>())));
    } else if (path == "/apply-template") {
      const auto* messages = find_member(parsed.object, "messages");
      const std::string text = messages == nullptr ? "[]" : json::to_text(*messages);
      const auto prompt = render_chat(context_.model, {.messages_json = text, .tools_json = {}},
                                      context_.shard.clock().wall_now());
      json.key("prompt").value(prompt ? *prompt : "");
    } else {
      return false;
    }
    json.end_object();
    respond_json(exchange, 200, out);
    return true;
  }

  std::string props() const {
    std::string out;
    json::Writer json(out);
    json.begin_object().key("default_generation_settings").begin_object();
    json.key("id").value(0).key("n_ctx").value(slot_context()).end_object();
    json.key("total_slots").value(slots()).key("model_path").value(context_.config.model_path);
    json.key("chat_template").value("").key("build_info").value("b0-stator");
    const inference::MediaKinds media = context_.model.media;
    json.key("modalities").begin_object();
    json.key("vision").value(media.has(inference::MediaKind::kImage));
    json.key("audio").value(media.has(inference::MediaKind::kAudio)).end_object();
    json.key("media_marker").value("<__media_sim__>").end_object();
    return out;
  }

  std::string slots_body() const {
    std::string out;
    json::Writer json(out);
    json.begin_array();
    const uint32_t busy = context_.host.load(0).running;
    for (uint32_t id = 0; id < slots(); ++id) {
      json.begin_object().key("id").value(id).key("n_ctx").value(slot_context());
      json.key("speculative").value(false).key("is_processing").value(id < busy);
      json.end_object();
    }
    json.end_array();
    return out;
  }

  std::string models() const {
    std::string out;
    json::Writer json(out);
    json.begin_object().key("object").value("list").key("data").begin_array().begin_object();
    json.key("id").value(context_.config.model_name).key("object").value("model");
    json.key("created").value(unix_seconds(context_.shard.clock().wall_now()));
    json.key("owned_by").value("llamacpp").key("meta").begin_object();
    json.key("n_vocab").value(context_.model.vocab_size);
    json.key("n_ctx_train").value(context_.model.max_model_len).end_object();
    json.end_object().end_array().end_object();
    return out;
  }

  std::string metrics() const {
    const auto load = context_.host.load(0);
    std::string out;
    const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                         uint64_t value) {
      out += fmt::format("# HELP llamacpp:{0} {2}\n# TYPE llamacpp:{0} {1}\nllamacpp:{0} {3}\n",
                         name, type, help, value);
    };
    add("prompt_tokens_total", "counter", "Number of prompt tokens processed.",
        counters_.prompt_tokens - counters_.cached_tokens);
    add("tokens_predicted_total", "counter", "Number of generation tokens processed.",
        counters_.generation_tokens);
    add("n_busy_slots_per_decode", "counter", "Average number of busy slots per llama_decode()",
        load.running);
    add("requests_processing", "gauge", "Number of requests processing.", load.running);
    add("requests_deferred", "gauge", "Number of requests deferred.", load.waiting);
    return out;
  }

  ServerContext& context_;
  PlainCounters counters_;
};

}  // namespace

Result<std::unique_ptr<DialectService>> make_llamacpp_service(ServerContext& context) {
  return std::make_unique<LlamacppService>(context);
}

}  // namespace stator::fake_engine
