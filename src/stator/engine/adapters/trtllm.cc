// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "stator/engine/adapters/handoff.h"
#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/openai_choice.h"

namespace stator::engine::adapters {
namespace {

// trtllm-serve of TensorRT-LLM 1.x: /v1/completions with ids in and out. It refuses requests with
// keys it does not know, so only those of its own schema are sent.

constexpr Traits kTraits = {.kind = "trtllm",
                            .health_path = "/health",
                            .metrics_path = "/metrics",
                            .cache_salt = true,
                            .logprobs_max = -1};  // they come as text without ids

constexpr Question kQuestions[] = {{.path = "/v1/models"}, {.path = "/version", .optional = true}};

class TrtllmRaiser final : public EventRaiser {
 public:
  explicit TrtllmRaiser(const inference::EngineRequest& request)
      : stop_(request.stop),
        gives_(request.phase == inference::Phase::kPrefill),
        answer_("trtllm") {}

  Status on_event(std::string_view json, Raised& out) override {
    STATOR_TRY(const OpenAiAnswer::Event event, answer_.read(json));
    if (gives_) {
      out.handoff = raw_object(json, {"choices", "0", "disaggregated_params"});
    }
    if (!event.has_choice) {
      return {};
    }
    Raised& target = answer_.target(out);
    JsonArray tokens;
    if (find_array(event.choice, "token_ids", tokens)) {
      STATOR_CHECK(append_tokens(tokens, target.tokens));
    } else if (!text_or(event.choice, "text", "").empty()) {
      return Error(Code::kUnsupported,
                   "this trtllm-serve does not return token ids: use --engine openai");
    }
    if (answer_.finished() && target.finish == inference::FinishReason::kStop) {
      // Whether the end token is among the ids differs by version.
      target.last_is_stop = !target.tokens.empty() && is_stop_token(stop_, target.tokens.back());
    }
    return {};
  }
  Status on_done(Raised& out) override { return answer_.done(out); }

 private:
  const inference::StopConditions stop_;
  const bool gives_;  // a prompt, to another server
  OpenAiAnswer answer_;
};

class TrtllmDialect final : public Dialect {
 public:
  const Traits& traits() const override { return kTraits; }
  std::span<const Question> questions() const override { return kQuestions; }

  Status learn(std::string_view path, std::string_view body, EngineFacts& facts) const override {
    if (path == "/v1/models") {
      return learn_models(body, facts);
    }
    JsonReader reader;
    STATOR_TRY(const JsonObject root, reader.read_object(body, path));
    facts.version = text_or(root, "version", "");
    return {};
  }

  Result<EngineCall> lower(const inference::EngineRequest& request,
                           const EngineFacts& facts) const override;

  std::unique_ptr<EventRaiser> make_raiser(const inference::EngineRequest& request) const override {
    return std::make_unique<TrtllmRaiser>(request);
  }

  /// A list of iterations since the last reading; the last one is now. An empty list: nothing ran.
  bool read_load(std::string_view metrics, const EngineFacts& /*facts*/,
                 LoadReading& reading) const override {
    simdjson::dom::parser parser;
    JsonArray iterations;
    if (parser.parse(metrics.data(), metrics.size()).get(iterations) != simdjson::SUCCESS) {
      return false;
    }
    for (const JsonElement element : iterations) {
      JsonObject iteration;
      if (element.get(iteration) == simdjson::SUCCESS) {
        read_iteration(iteration, reading.load);
      }
    }
    return true;
  }

 private:
  static void read_iteration(const JsonObject& iteration, LoadReport& load) {
    const auto number = [](const JsonObject& object, std::string_view key) {
      return static_cast<uint32_t>(unsigned_or(object, key, 0));
    };
    load.running = number(iteration, "numActiveRequests");
    load.waiting = number(iteration, "numQueuedRequests");
    JsonObject cache;
    if (find_object(iteration, "kvCacheStats", cache)) {
      load.kv_used_blocks = number(cache, "usedNumBlocks");
      load.kv_total_blocks = number(cache, "maxNumBlocks");
      const uint64_t per_block = number(cache, "tokensPerBlock");
      load.prefix_hit_tokens = number(cache, "reusedBlocks") * per_block;
      load.prefix_query_tokens = load.prefix_hit_tokens + number(cache, "missedBlocks") * per_block;
    }
  }
};

Result<EngineCall> TrtllmDialect::lower(const inference::EngineRequest& request,
                                        const EngineFacts& facts) const {
  STATOR_TRY(const auto fields, lower_structured(request, structured::Dialect::kTensorRtLlm));
  const inference::SamplingParams& sampling = request.sampling;
  EngineCall call{.path = "/v1/completions"};
  json::Writer json(call.body);
  json.begin_object();
  json.key("model").value(facts.model);
  json.key("prompt");
  write_tokens(json, request.tokens);
  json.key("detokenize").value(false);
  json.key("stream").value(request.phase != inference::Phase::kPrefill);
  if (request.phase == inference::Phase::kPrefill) {
    json.key("disaggregated_params").raw(R"({"request_type":"context_only"})");
  } else {
    json.key("stream_options").raw(R"({"include_usage":true})");
  }
  if (request.phase == inference::Phase::kDecode) {
    STATOR_TRY(const std::string taken,
               with_text_member(request.handoff.payload, "request_type", "generation_only"));
    json.key("disaggregated_params").raw(taken);
  }
  json.key("max_tokens").value(tokens_left(request, facts));
  json.key("min_tokens").value(min_tokens_left(request));
  json.key("temperature").value(sampling.temperature);
  json.key("top_p").value(sampling.top_p);
  json.key("top_k").value(std::max(sampling.top_k, 0));
  json.key("min_p").value(sampling.min_p);
  json.key("presence_penalty").value(sampling.presence_penalty);
  json.key("frequency_penalty").value(sampling.frequency_penalty);
  json.key("repetition_penalty").value(sampling.repetition_penalty);
  json.key("ignore_eos").value(request.stop.ignore_eos);
  json.key("stop_token_ids");
  write_tokens(json, stop_tokens(request));
  if (sampling.seed) {
    json.key("seed").value(*sampling.seed);
  }
  if (!sampling.logit_bias.empty()) {
    json.key("logit_bias");
    write_logit_bias(json, sampling);
  }
  if (!request.cache_salt.empty()) {
    json.key("cache_salt").value("stator-salt:" + request.cache_salt);
  }
  write_fields(json, fields, structured::EngineField::Place::kSampling);
  json.end_object();
  return call;
}

}  // namespace

std::unique_ptr<Dialect> make_trtllm_dialect(const DialectOptions& /*options*/) {
  return std::make_unique<TrtllmDialect>();
}

}  // namespace stator::engine::adapters
