// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "stator/core/assert.h"
#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/media.h"
#include "stator/engine/adapters/openai_choice.h"
#include "stator/engine/adapters/retokenizer.h"

namespace stator::engine::adapters {
namespace {

// Any server with /v1/completions: text in, text out; with images or audio, /v1/chat/completions.
// The prompt's text is what the model's template made, so the server must not apply one; token ids
// of the answer are made here and stand for its text only. Log-probabilities, stop token ids,
// min_tokens and ignore_eos need ids and are refused.

constexpr Traits kTraits = {.kind = "openai",
                            .health_path = "/v1/models",
                            .metrics_path = "",
                            .token_ids = false,
                            .min_tokens = false,
                            .ignore_eos = false,
                            .stop_token_ids = false,
                            .media = inference::MediaKinds::all(),
                            .logprobs_max = -1};

constexpr Question kQuestions[] = {{.path = "/v1/models"}};

class OpenAiRaiser final : public EventRaiser {
 public:
  explicit OpenAiRaiser(const Retokenizer& retokenizer)
      : retokenizer_(retokenizer), answer_("openai") {}

  Status on_event(std::string_view json, Raised& out) override {
    STATOR_TRY(const OpenAiAnswer::Event event, answer_.read(json));
    if (!event.has_choice) {
      return {};
    }
    std::string_view text = text_or(event.choice, "text", "");
    // Of a chat: a delta, or the whole message.
    for (const char* member : {"delta", "message"}) {
      if (JsonObject part; find_object(event.choice, member, part)) {
        text = text_or(part, "content", "");
      }
    }
    return retokenizer_.append(text, answer_.target(out).tokens);
  }
  Status on_done(Raised& out) override { return answer_.done(out); }

 private:
  const Retokenizer& retokenizer_;
  OpenAiAnswer answer_;
};

class OpenAiDialect final : public Dialect {
 public:
  /// Without a tokenizer it can only be asked what the server is.
  explicit OpenAiDialect(const tokenizer::Tokenizer* tokenizer) {
    if (tokenizer != nullptr) {
      retokenizer_.emplace(*tokenizer);
    }
  }

  const Traits& traits() const override { return kTraits; }
  std::span<const Question> questions() const override { return kQuestions; }

  Status learn(std::string_view /*path*/, std::string_view body,
               EngineFacts& facts) const override {
    return learn_models(body, facts);
  }

  Result<EngineCall> lower(const inference::EngineRequest& request,
                           const EngineFacts& facts) const override;

  std::unique_ptr<EventRaiser> make_raiser(
      const inference::EngineRequest& /*request*/) const override {
    return std::make_unique<OpenAiRaiser>(*retokenizer_);
  }

  bool read_load(std::string_view /*metrics*/, const EngineFacts& /*facts*/,
                 LoadReading& /*reading*/) const override {
    return false;
  }

 private:
  std::optional<Retokenizer> retokenizer_;
};

Result<EngineCall> OpenAiDialect::lower(const inference::EngineRequest& request,
                                        const EngineFacts& facts) const {
  STATOR_ASSERT(retokenizer_.has_value(), "a text engine needs the model's tokenizer");
  STATOR_TRY(const auto fields, lower_structured(request, structured::Dialect::kOpenAi));
  const inference::SamplingParams& sampling = request.sampling;
  const bool chat = request.media != nullptr;
  EngineCall call{.path = chat ? "/v1/chat/completions" : "/v1/completions"};
  json::Writer json(call.body);
  json.begin_object();
  json.key("model").value(facts.model);
  if (chat) {
    STATOR_CHECK(write_chat(json, *request.media, PartStyle::kOpenAi));
  } else {
    json.key("prompt").value(retokenizer_->prompt_text(request.tokens));
  }
  json.key("stream").value(true);
  json.key("stream_options").raw(R"({"include_usage":true})");
  if (!chat || !fills_context(request, facts.max_model_len)) {
    json.key("max_tokens").value(tokens_left(request, facts));
  }
  json.key("temperature").value(sampling.temperature);
  json.key("top_p").value(sampling.top_p);
  json.key("presence_penalty").value(sampling.presence_penalty);
  json.key("frequency_penalty").value(sampling.frequency_penalty);
  // Not of the original API, but most servers know them; one that does not says so or ignores them.
  if (sampling.top_k > 0) {
    json.key("top_k").value(sampling.top_k);
  }
  if (sampling.min_p > 0) {
    json.key("min_p").value(sampling.min_p);
  }
  if (sampling.repetition_penalty != 1) {
    json.key("repetition_penalty").value(sampling.repetition_penalty);
  }
  if (sampling.seed) {
    json.key("seed").value(*sampling.seed);
  }
  if (!sampling.logit_bias.empty()) {
    json.key("logit_bias");
    write_logit_bias(json, sampling);
  }
  write_fields(json, fields, structured::EngineField::Place::kSampling);
  json.end_object();
  return call;
}

}  // namespace

std::unique_ptr<Dialect> make_openai_dialect(const DialectOptions& options) {
  return std::make_unique<OpenAiDialect>(options.tokenizer);
}

}  // namespace stator::engine::adapters
