// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "stator/engine/adapters/event_sources.h"
#include "stator/engine/adapters/handoff.h"
#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/media.h"
#include "stator/engine/adapters/openai_choice.h"
#include "stator/engine/adapters/sglang.h"
#include "stator/text/prometheus_text.h"

namespace stator::engine::adapters {
namespace {

// SGLang over HTTP, 0.5: the native /generate route.

constexpr Traits kTraits = {.kind = "sglang",
                            .health_path = kModelsPath,  // /health generates a token when idle
                            .metrics_path = "/metrics",
                            .kv_events = true,
                            .priority = true,
                            .lora = true,
                            .cache_salt = true,
                            .prompt_logprobs = true,
                            .media = inference::MediaKinds::all(),
                            .logprobs_max = 20};

constexpr std::string_view kModelInfoPath = "/get_model_info";

constexpr Question kQuestions[] = {{.path = kModelsPath},
                                   {.path = "/server_info", .optional = true},
                                   {.path = "/get_server_info", .optional = true},
                                   {.path = kModelInfoPath, .optional = true}};

constexpr std::string_view kSaltTag = "stator-salt:";

/// Releases that do not say it leave it to the operator.
Status learn_model_info(std::string_view body, EngineFacts& facts) {
  JsonReader reader;
  STATOR_TRY(const JsonObject root, reader.read_object(body, kModelInfoPath));
  if (root["has_image_understanding"].error() != simdjson::SUCCESS) {
    return {};
  }
  inference::MediaKinds kinds;
  if (is_true(root, "has_image_understanding")) {
    kinds.add(inference::MediaKind::kImage);
  }
  if (is_true(root, "has_audio_understanding")) {
    kinds.add(inference::MediaKind::kAudio);
  }
  facts.media = kinds;
  return {};
}

Status learn_server_info(std::string_view body, std::string_view host, EngineFacts& facts) {
  JsonReader reader;
  STATOR_TRY(const JsonObject root, reader.read_object(body, "/server_info"));
  facts.version = text_or(root, "version", facts.version);
  const auto number = [&](std::string_view key) {
    return static_cast<uint32_t>(unsigned_or(root, key, 0));
  };
  facts.block_size = number("page_size");
  const uint32_t tokens = std::max(number("max_total_num_tokens"), number("max_total_tokens"));
  if (facts.block_size > 0) {
    facts.total_blocks = (tokens + facts.block_size - 1) / facts.block_size;
  }
  facts.max_num_seqs = number("max_running_requests");
  facts.dp_size = std::clamp(number("dp_size"), 1U, kDpRanksMax);
  facts.role =
      inference::find_role(text_or(root, "disaggregation_mode", ""));  // null in a whole server
  facts.bootstrap_port = static_cast<uint16_t>(number("disaggregation_bootstrap_port"));
  // Seen with 0.5.23: without this option a seed changes nothing.
  facts.keeps_seeds = root["enable_deterministic_inference"].error() != simdjson::SUCCESS ||
                      is_true(root, "enable_deterministic_inference");
  if (is_true(root, "is_embedding")) {
    facts.generates = false;
    facts.pool_tasks = {inference::PoolTask::kEmbed, inference::PoolTask::kScore};
  }
  facts.kv_sources.clear();
  if (is_true(root, "enable_lora") || !facts.adapters.empty()) {
    return {};  // events do not tell adapters' blocks from the model's own (0.5.23)
  }
  JsonObject events;
  if (find_object(root, "kv_events", events) && text_or(events, "publisher", "") == "zmq") {
    const auto ranks = static_cast<uint32_t>(
        std::clamp<uint64_t>(unsigned_or(events, "dp_size", 1), 1, kDpRanksMax));
    facts.dp_size = std::max(facts.dp_size, ranks);
    const std::string base =
        reachable_endpoint(fmt::format("tcp://{}:{}", text_or(events, "endpoint_host", "*"),
                                       unsigned_or(events, "endpoint_port_base", 0)),
                           host);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      facts.kv_sources.push_back({.dp_rank = rank,
                                  .endpoint = endpoint_of_rank(base, rank),
                                  .replay_endpoint = {},
                                  .topic = std::string(text_or(events, "topic", ""))});
    }
  }
  return {};
}

/// Reads streams in both modes: the default repeats everything said so far in every event; with
/// --incremental-streaming-output each event has only what is new. An event tells which it is by
/// its own count of completion tokens.
class SglangRaiser final : public EventRaiser {
 public:
  explicit SglangRaiser(const inference::EngineRequest& request)
      : logprobs_(request.sampling.logprobs), prompt_logprobs_(request.prompt_logprobs) {}

  Status on_event(std::string_view json, Raised& out) override {
    STATOR_TRY(const JsonObject event, reader_.read_object(json, "an event of SGLang's answer"));
    STATOR_CHECK(check_error_event(event, "sglang"));
    JsonObject meta;
    JsonArray ids;
    if (!find_object(event, "meta_info", meta) || !find_array(event, "output_ids", ids)) {
      return Error(Code::kCorrupt, "SGLang sent an event without output_ids and meta_info");
    }
    STATOR_TRY(const bool finished, read_finish(meta));
    const auto total = unsigned_or(meta, "completion_tokens", ids.size());
    const size_t skip = ids.size() >= total ? std::min(told_, ids.size()) : 0;
    Raised& target = finished ? held_ : out;
    STATOR_CHECK(read_tokens(ids, skip, target));
    if (logprobs_) {
      read_logprobs(meta, "output", skip, target.tokens.size(), target.logprobs);
    }
    if (prompt_logprobs_) {
      read_logprobs(meta, "input", unscored(meta), SIZE_MAX, out.prompt_logprobs);
    }
    told_ += ids.size() - skip;
    cached_tokens_ = static_cast<uint32_t>(unsigned_or(meta, "cached_tokens", cached_tokens_));
    out.cached_tokens = cached_tokens_;
    if (finished) {
      held_.last_is_stop = matched_ && !held_.tokens.empty() && held_.tokens.back() == *matched_;
    }
    return {};
  }

  Status on_done(Raised& out) override {
    if (!held_.finished()) {
      return Error(Code::kDisconnected, "sglang ended the answer without saying why");
    }
    out.finish = held_.finish;
    out.cached_tokens = cached_tokens_;
    std::ranges::copy(held_.tokens, std::back_inserter(out.tokens));
    std::ranges::move(held_.logprobs, std::back_inserter(out.logprobs));
    out.last_is_stop = held_.last_is_stop;
    return {};
  }

 private:
  Result<bool> read_finish(const JsonObject& meta) {
    JsonObject reason;
    if (!find_object(meta, "finish_reason", reason)) {
      return false;
    }
    const std::string_view type = text_or(reason, "type", "");
    if (type == "abort") {
      const auto status = unsigned_or(reason, "status_code", 0);
      const std::string text(text_or(reason, "message", "no reason given"));
      const bool client = status >= 400 && status < 500;
      return Error(client ? Code::kInvalidArgument : Code::kDisconnected,
                   "sglang aborted the request: " + text);
    }
    held_.finish =
        type == "length" ? inference::FinishReason::kLength : inference::FinishReason::kStop;
    uint64_t matched = 0;
    if (reason["matched"].get(matched) == simdjson::SUCCESS) {
      matched_ = static_cast<TokenId>(matched);
    }
    return true;
  }

  static Status read_tokens(const JsonArray& ids, size_t skip, Raised& target) {
    std::vector<TokenId> all;
    STATOR_CHECK(append_tokens(ids, all));
    target.tokens.insert(target.tokens.end(), all.begin() + static_cast<ptrdiff_t>(skip),
                         all.end());
    return {};
  }

  /// [logprob, id, text]
  static bool read_entry(const JsonElement& element, inference::TokenLogprob& out) {
    JsonArray entry;
    uint64_t id = 0;
    if (element.get(entry) != simdjson::SUCCESS || entry.at(1).get(id) != simdjson::SUCCESS) {
      return false;
    }
    double value = -9999;
    static_cast<void>(entry.at(0).get(value));
    out.token = static_cast<TokenId>(id);
    out.logprob = std::max(static_cast<float>(value), -9999.0F);
    return true;
  }

  /// Of "input" or "output", behind the first `skip`; at most `count` in all.
  void read_logprobs(const JsonObject& meta, std::string_view of, size_t skip, size_t count,
                     std::vector<inference::TokenLogprobs>& out) const {
    JsonArray sampled;
    JsonArray tops;
    if (!find_array(meta, fmt::format("{}_token_logprobs", of), sampled)) {
      return;
    }
    const bool has_tops = find_array(meta, fmt::format("{}_top_logprobs", of), tops);
    auto top = has_tops ? tops.begin() : JsonArray::iterator();
    size_t at = 0;
    for (const JsonElement element : sampled) {
      if (out.size() >= count) {
        return;
      }
      inference::TokenLogprobs made;
      const bool told = has_tops && top != tops.end();
      if (at++ >= skip) {
        if (!read_entry(element, made.sampled)) {
          return;
        }
        if (told) {
          read_top(*top, made);
        }
        set_ranks(made);
        out.push_back(std::move(made));
      }
      if (told) {
        ++top;
      }
    }
  }

  void read_top(const JsonElement& element, inference::TokenLogprobs& out) const {
    JsonArray top;
    if (element.get(top) == simdjson::SUCCESS) {
      for (const JsonElement each : top) {
        inference::TokenLogprob entry;
        if (read_entry(each, entry) && out.top.size() < *logprobs_) {
          out.top.push_back(entry);
        }
      }
    }
  }

  /// How many of a prompt's entries say nothing: the first one, which some versions leave out.
  static size_t unscored(const JsonObject& meta) {
    JsonArray sampled;
    JsonArray first;
    return find_array(meta, "input_token_logprobs", sampled) &&
                   sampled.at(0).get(first) == simdjson::SUCCESS && first.at(0).is_null()
               ? 1
               : 0;
  }

  const std::optional<uint32_t> logprobs_;
  const bool prompt_logprobs_;
  JsonReader reader_;
  size_t told_ = 0;  // tokens of earlier events
  uint32_t cached_tokens_ = 0;
  std::optional<TokenId> matched_;
  Raised held_;
};

class SglangDialect final : public Dialect {
 public:
  explicit SglangDialect(const DialectOptions& options) : host_(options.host) {}

  const Traits& traits() const override { return kTraits; }
  std::span<const Question> questions() const override { return kQuestions; }

  Status learn(std::string_view path, std::string_view body, EngineFacts& facts) const override {
    if (path == kModelsPath) {
      return learn_models(body, facts);
    }
    if (path == kModelInfoPath) {
      return learn_model_info(body, facts);
    }
    // The second name is the older one: asked, too, but the first to answer counts.
    return facts.block_size > 0 ? Status() : learn_server_info(body, host_, facts);
  }

  Result<EngineCall> lower(const inference::EngineRequest& request,
                           const EngineFacts& facts) const override;

  std::unique_ptr<EventRaiser> make_raiser(const inference::EngineRequest& request) const override {
    return std::make_unique<SglangRaiser>(request);
  }

  Result<EngineCall> lower_control(const Control& control) const override {
    return lower_sglang_control(control);
  }
  Status read_control(const Control& control, int status, std::string_view body) const override {
    return read_sglang_control(control, status, body);
  }

  bool read_load(std::string_view metrics, const EngineFacts& facts,
                 LoadReading& reading) const override {
    const auto read = [&](std::string_view newer, std::string_view older) {
      return text::find_metric(metrics, {newer, older});
    };
    const auto running = read("sglang:num_running_reqs", "sglang_num_running_reqs");
    const auto waiting = read("sglang:num_queue_reqs", "sglang_num_queue_reqs");
    const auto usage = read("sglang:token_usage", "sglang_token_usage");
    LoadReport& load = reading.load;
    load.running = static_cast<uint32_t>(running.value_or(0));
    load.waiting = static_cast<uint32_t>(waiting.value_or(0));
    load.kv_total_blocks = facts.total_blocks;
    load.kv_used_blocks =
        static_cast<uint32_t>(std::lround(usage.value_or(0) * facts.total_blocks));
    load.prefix_hit_tokens = static_cast<uint64_t>(
        read("sglang:cached_tokens_total", "sglang_cached_tokens_total").value_or(0));
    load.prefix_query_tokens = static_cast<uint64_t>(
        read("sglang:prompt_tokens_total", "sglang_prompt_tokens_total").value_or(0));
    reading.process_start_s =
        text::find_metric(metrics, {"process_start_time_seconds"}).value_or(0);
    return running.has_value() || usage.has_value();
  }

 private:
  const std::string host_;
};

/// By kind, in the order of their placeholders.
void write_media(json::Writer& json, const inference::EngineRequest& request) {
  if (request.media == nullptr) {
    return;
  }
  const std::pair<inference::MediaKind, std::string_view> lists[] = {
      {inference::MediaKind::kImage, "image_data"},
      {inference::MediaKind::kAudio, "audio_data"},
      {inference::MediaKind::kVideo, "video_data"}};
  for (const auto& [kind, name] : lists) {
    bool any = false;
    for (const inference::MediaItem& item : request.media->items) {
      if (item.blob->kind != kind) {
        continue;
      }
      if (!std::exchange(any, true)) {
        json.key(name).begin_array();
      }
      json.value(to_data_url(*item.blob));
    }
    if (any) {
      json.end_array();
    }
  }
}

Result<EngineCall> SglangDialect::lower(const inference::EngineRequest& request,
                                        const EngineFacts& facts) const {
  STATOR_TRY(const auto fields, lower_structured(request, structured::Dialect::kSglang));
  const inference::SamplingParams& sampling = request.sampling;
  EngineCall call{.path = "/generate"};
  json::Writer json(call.body);
  json.begin_object();
  json.key("rid").value(request_name(request));
  if (request.phase != inference::Phase::kWhole) {
    STATOR_TRY(const MeetingPoint point, read_meeting_point(request.handoff.payload));
    json.key("bootstrap_host").value(point.host);
    json.key("bootstrap_port").value(uint64_t{point.port});
    json.key("bootstrap_room").value(request.handoff.id);
  }
  json.key("input_ids");
  write_tokens(json, request.media == nullptr ? request.tokens : collapse_media(request));
  write_media(json, request);
  // Every event of a stream would repeat the prompt's log-probabilities.
  json.key("stream").value(!request.prompt_logprobs);
  json.key("sampling_params").begin_object();
  json.key("max_new_tokens").value(tokens_left(request, facts));
  json.key("min_new_tokens").value(min_tokens_left(request));
  json.key("temperature").value(sampling.temperature);
  json.key("top_p").value(sampling.top_p);
  json.key("top_k").value(sampling.top_k > 0 ? sampling.top_k : -1);
  json.key("min_p").value(sampling.min_p);
  json.key("presence_penalty").value(sampling.presence_penalty);
  json.key("frequency_penalty").value(sampling.frequency_penalty);
  json.key("repetition_penalty").value(sampling.repetition_penalty);
  json.key("ignore_eos").value(request.stop.ignore_eos);
  json.key("stop_token_ids");
  write_tokens(json, stop_tokens(request));
  json.key("skip_special_tokens").value(false);
  if (sampling.seed) {
    json.key("sampling_seed").value(*sampling.seed);
  }
  if (!sampling.logit_bias.empty()) {
    json.key("logit_bias");
    write_logit_bias(json, sampling);
  }
  write_fields(json, fields, structured::EngineField::Place::kSampling);
  json.end_object();
  if (sampling.logprobs) {
    json.key("return_logprob").value(true);
    json.key("top_logprobs_num").value(*sampling.logprobs);
    if (request.prompt_logprobs) {
      json.key("logprob_start_len").value(0);
    }
  }
  if (request.priority != 0) {
    json.key("priority").value(request.priority);  // large first, as ours
  }
  if (!request.lora_name.empty()) {
    json.key("lora_path").value(request.lora_name);
  }
  if (request.dp_rank) {
    json.key("routed_dp_rank").value(*request.dp_rank);
  }
  if (!request.cache_salt.empty()) {
    json.key("cache_salt").value(std::string(kSaltTag) + request.cache_salt);
  }
  write_fields(json, fields, structured::EngineField::Place::kBody);
  json.end_object();
  return call;
}

}  // namespace

std::unique_ptr<Dialect> make_sglang_dialect(const DialectOptions& options) {
  return std::make_unique<SglangDialect>(options);
}

}  // namespace stator::engine::adapters
