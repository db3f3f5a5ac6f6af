// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/media.h"
#include "stator/engine/adapters/openai_choice.h"
#include "stator/text/base64.h"
#include "stator/text/prometheus_text.h"

namespace stator::engine::adapters {
namespace {

// llama.cpp's server: its own /completion route, the one that takes and gives token ids.

constexpr inference::MediaKinds image_and_audio() {
  inference::MediaKinds kinds;
  kinds.add(inference::MediaKind::kImage);
  kinds.add(inference::MediaKind::kAudio);
  return kinds;
}

constexpr Traits kTraits = {.kind = "llamacpp",
                            .health_path = "/health",
                            .metrics_path = "/metrics",
                            .min_tokens = false,
                            .media = image_and_audio(),
                            .logprobs_max = 100};

constexpr Question kQuestions[] = {
    {.path = "/health"}, {.path = "/v1/models"}, {.path = "/props", .optional = true}};

// Where a server does not tell its own.
constexpr std::string_view kMediaMarker = "<__media__>";

Status learn_props(std::string_view body, EngineFacts& facts) {
  JsonReader reader;
  STATOR_TRY(const JsonObject root, reader.read_object(body, "/props"));
  facts.max_num_seqs = static_cast<uint32_t>(unsigned_or(root, "total_slots", 0));
  facts.version = text_or(root, "build_info", "");
  facts.model_root = text_or(root, "model_path", facts.model_root);
  facts.media_marker = text_or(root, "media_marker", kMediaMarker);
  if (JsonObject modalities; find_object(root, "modalities", modalities)) {
    inference::MediaKinds kinds;
    if (is_true(modalities, "vision")) {
      kinds.add(inference::MediaKind::kImage);
    }
    if (is_true(modalities, "audio")) {
      kinds.add(inference::MediaKind::kAudio);
    }
    facts.media = kinds;
  }
  JsonObject settings;
  if (find_object(root, "default_generation_settings", settings)) {
    // Of one slot: the prompt and the answer must fit there.
    facts.max_model_len =
        static_cast<uint32_t>(unsigned_or(settings, "n_ctx", facts.max_model_len));
  }
  return {};
}

/// The server stops at the model's own end token, which it does not show; other stop tokens are
/// watched for here.
class LlamaCppRaiser final : public EventRaiser {
 public:
  explicit LlamaCppRaiser(const inference::EngineRequest& request)
      : logprobs_(request.sampling.logprobs), stop_tokens_(request.stop.stop_token_ids) {}

  Status on_event(std::string_view json, Raised& out) override {
    STATOR_TRY(const JsonObject event, reader_.read_object(json, "an event of llama.cpp's answer"));
    STATOR_CHECK(check_error_event(event, "llamacpp"));
    JsonArray ids;
    if (!find_array(event, "tokens", ids)) {
      return Error(Code::kCorrupt, "llama.cpp sent an event without tokens (return_tokens)");
    }
    STATOR_CHECK(append_tokens(ids, out.tokens));
    if (logprobs_) {
      read_logprobs(event, out);
    }
    const auto stop = std::ranges::find_first_of(out.tokens, stop_tokens_);
    if (stop != out.tokens.end()) {
      out.tokens.erase(stop + 1, out.tokens.end());
      out.logprobs.resize(std::min(out.logprobs.size(), out.tokens.size()));
      finish_ = inference::FinishReason::kStop;
      last_is_stop_ = true;
      next_ = Next::kAbort;
    } else if (is_true(event, "stop")) {
      read_end(event);
    }
    return {};
  }

  Status on_done(Raised& out) override {
    if (finish_ == inference::FinishReason::kNone) {
      return Error(Code::kDisconnected, "llamacpp ended the answer without saying why");
    }
    out.finish = finish_;
    out.last_is_stop = last_is_stop_;
    out.cached_tokens = cached_tokens_;
    return {};
  }

  Next next() const override { return next_; }

 private:
  void read_end(const JsonObject& event) {
    const bool limit =
        text_or(event, "stop_type", "") == "limit" || is_true(event, "stopped_limit");
    finish_ = limit ? inference::FinishReason::kLength : inference::FinishReason::kStop;
    next_ = Next::kDone;
    JsonObject timings;
    if (find_object(event, "timings", timings)) {
      cached_tokens_ = static_cast<uint32_t>(unsigned_or(timings, "cache_n", 0));
    }
  }

  static inference::TokenLogprob read_entry(const JsonObject& entry) {
    return {.token = static_cast<TokenId>(unsigned_or(entry, "id", 0)),
            .logprob = std::max(static_cast<float>(number_or(entry, "logprob", -9999)), -9999.0F)};
  }

  void read_logprobs(const JsonObject& event, Raised& out) const {
    JsonArray list;
    if (!find_array(event, "completion_probabilities", list)) {
      return;
    }
    for (const JsonElement element : list) {
      JsonObject fields;
      if (element.get(fields) != simdjson::SUCCESS || out.logprobs.size() >= out.tokens.size()) {
        return;
      }
      inference::TokenLogprobs made{.sampled = read_entry(fields), .top = {}};
      JsonArray top;
      if (find_array(fields, "top_logprobs", top)) {
        for (const JsonElement entry : top) {
          JsonObject object;
          if (entry.get(object) == simdjson::SUCCESS && made.top.size() < *logprobs_) {
            made.top.push_back(read_entry(object));
          }
        }
      }
      set_ranks(made);
      out.logprobs.push_back(std::move(made));
    }
  }

  const std::optional<uint32_t> logprobs_;
  const std::vector<TokenId> stop_tokens_;
  JsonReader reader_;
  inference::FinishReason finish_ = inference::FinishReason::kNone;
  bool last_is_stop_ = false;
  uint32_t cached_tokens_ = 0;
  Next next_ = Next::kMore;
};

class LlamaCppDialect final : public Dialect {
 public:
  const Traits& traits() const override { return kTraits; }
  std::span<const Question> questions() const override { return kQuestions; }

  Status learn(std::string_view path, std::string_view body, EngineFacts& facts) const override {
    if (path == "/v1/models") {
      // The name is a file path that requests need not repeat.
      return learn_models(body, facts);
    }
    return path == "/props" ? learn_props(body, facts) : Status();
  }

  Result<EngineCall> lower(const inference::EngineRequest& request,
                           const EngineFacts& facts) const override;

  std::unique_ptr<EventRaiser> make_raiser(const inference::EngineRequest& request) const override {
    return std::make_unique<LlamaCppRaiser>(request);
  }

  bool read_load(std::string_view metrics, const EngineFacts& /*facts*/,
                 LoadReading& reading) const override {
    const auto running = text::find_metric(metrics, {"llamacpp:requests_processing"});
    const auto waiting = text::find_metric(metrics, {"llamacpp:requests_deferred"});
    reading.load.running = static_cast<uint32_t>(running.value_or(0));
    reading.load.waiting = static_cast<uint32_t>(waiting.value_or(0));
    return running.has_value();
  }
};

/// How far back penalties look: over everything, as other engines do. Releases of late 2026 refuse
/// the -1 that said so, and reserve memory for what is named.
uint32_t penalty_window(const inference::SamplingParams& sampling, const EngineFacts& facts) {
  const bool none = sampling.repetition_penalty == 1.0F && sampling.presence_penalty == 0.0F &&
                    sampling.frequency_penalty == 0.0F;
  return none ? 0 : facts.max_model_len;
}

/// Text with a marker for each medium, and the media in base64.
Status write_media_prompt(json::Writer& json, const inference::MediaInput& media,
                          const EngineFacts& facts) {
  const std::string marker =
      facts.media_marker.empty() ? std::string(kMediaMarker) : facts.media_marker;
  if (media.pieces.empty()) {
    return Error(Code::kUnsupported,
                 "engine 'llamacpp' needs a chat template that writes each medium once");
  }
  std::string prompt;
  for (size_t i = 0; i < media.pieces.size(); ++i) {
    if (media.pieces[i].contains(marker)) {
      return Error(Code::kInvalidArgument, "the text contains the engine's marker of media");
    }
    prompt += i == 0 ? "" : marker;
    prompt += media.pieces[i];
  }
  json.begin_object().key("prompt_string").value(prompt);
  json.key("multimodal_data").begin_array();
  for (const inference::MediaItem& item : media.items) {
    std::string data;
    text::append_base64(data, item.blob->bytes);
    json.value(data);
  }
  json.end_array().end_object();
  return {};
}

// The server's own defaults are not neutral (temperature 0.8, top_k 40, …): every field is sent.
Result<EngineCall> LlamaCppDialect::lower(const inference::EngineRequest& request,
                                          const EngineFacts& facts) const {
  STATOR_TRY(const auto fields, lower_structured(request, structured::Dialect::kLlamaCpp));
  const inference::SamplingParams& sampling = request.sampling;
  EngineCall call{.path = "/completion"};
  json::Writer json(call.body);
  json.begin_object();
  json.key("prompt");
  if (request.media == nullptr) {
    write_tokens(json, request.tokens);
  } else {
    STATOR_CHECK(write_media_prompt(json, *request.media, facts));
  }
  // Alone it knows how long the prompt becomes; -1: to the end of its context.
  const bool all = request.media != nullptr && fills_context(request, facts.max_model_len);
  json.key("n_predict").value(all ? int64_t{-1} : int64_t{tokens_left(request, facts)});
  json.key("stream").value(true).key("return_tokens").value(true);
  json.key("cache_prompt").value(true);
  json.key("temperature").value(sampling.temperature);
  json.key("top_k").value(std::max(sampling.top_k, 0));
  json.key("top_p").value(sampling.top_p);
  json.key("min_p").value(sampling.min_p);
  json.key("typical_p").value(1.0);
  json.key("repeat_penalty").value(sampling.repetition_penalty);
  json.key("repeat_last_n").value(penalty_window(sampling, facts));
  json.key("presence_penalty").value(sampling.presence_penalty);
  json.key("frequency_penalty").value(sampling.frequency_penalty);
  json.key("ignore_eos").value(request.stop.ignore_eos);
  json.key("samplers").raw(R"(["penalties","top_k","top_p","min_p","temperature"])");
  if (sampling.seed) {
    json.key("seed").value(static_cast<uint32_t>(*sampling.seed));
  }
  if (!sampling.logit_bias.empty()) {
    json.key("logit_bias").begin_array();
    for (const auto& [token, bias] : sampling.logit_bias) {
      json.begin_array().value(token).value(bias).end_array();
    }
    json.end_array();
  }
  if (sampling.logprobs) {
    json.key("n_probs").value(std::max(*sampling.logprobs, 1U));  // 0 would switch them off
  }
  write_fields(json, fields, structured::EngineField::Place::kSampling);
  json.end_object();
  return call;
}

}  // namespace

std::unique_ptr<Dialect> make_llamacpp_dialect(const DialectOptions& /*options*/) {
  return std::make_unique<LlamaCppDialect>();
}

}  // namespace stator::engine::adapters
