// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/vllm.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

#include "stator/engine/adapters/event_sources.h"
#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/openai_choice.h"
#include "stator/text/prometheus_text.h"

namespace stator::engine::adapters {
namespace {

constexpr Traits kTraits = {.kind = "vllm",
                            .health_path = "/health",
                            .metrics_path = "/metrics",
                            .kv_events = true,
                            .token_filters = true,
                            .priority = true,
                            .lora = true,
                            .cache_salt = true,
                            .prompt_logprobs = true,
                            .media = inference::MediaKinds::all(),
                            .logprobs_max = 20};

// Order matters: the list of models first, so that a wrong URL is told by its plainest question.
constexpr Question kQuestions[] = {{.path = kModelsPath},
                                   {.path = "/version", .optional = true},
                                   {.path = "/metrics", .optional = true},
                                   {.path = "/kv_event_sources", .optional = true},
                                   {.path = "/openapi.json", .optional = true}};

uint32_t label_number(std::string_view metrics, std::string_view label) {
  const std::string_view text = text::find_label(metrics, "vllm:cache_config_info", label);
  uint32_t value = 0;  // "None" where the server has not decided
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Status learn_version(std::string_view body, EngineFacts& facts) {
  JsonReader reader;
  STATOR_TRY(const JsonObject root, reader.read_object(body, "/version"));
  facts.version = text_or(root, "version", "");
  return {};
}

void learn_cache(std::string_view metrics, EngineFacts& facts) {
  // Hybrid models resolve to a block size that nobody asked for; it is the effective one that
  // events speak of.
  const uint32_t effective = label_number(metrics, "effective_attention_block_size");
  facts.block_size = effective > 0 ? effective : label_number(metrics, "block_size");
  facts.total_blocks = label_number(metrics, "num_gpu_blocks");
}

/// A server has the routes of what its model can do. One that hides its description, or is older,
/// generates as far as we know.
void learn_routes(std::string_view body, EngineFacts& facts) {
  const auto has = [body](std::string_view path) {
    return body.find(fmt::format("\"{}\":", path)) != std::string_view::npos;
  };
  const bool generates = has("/v1/completions");
  inference::PoolTasks tasks;
  if (has("/v1/embeddings")) {
    tasks.add(inference::PoolTask::kEmbed);
    tasks.add(inference::PoolTask::kTokenEmbed);
  }
  if (has("/classify")) {
    tasks.add(inference::PoolTask::kClassify);
  }
  if (has("/score")) {
    tasks.add(inference::PoolTask::kScore);
  }
  if (generates != tasks.any()) {  // else it has all routes whatever the model
    facts.generates = generates;
    facts.pool_tasks = tasks;
  }
}

class VllmDialect final : public Dialect {
 public:
  explicit VllmDialect(const DialectOptions& options)
      : generate_(options.vllm_generate), host_(options.host) {}

  const Traits& traits() const override { return kTraits; }
  std::span<const Question> questions() const override { return kQuestions; }

  Status learn(std::string_view path, std::string_view body, EngineFacts& facts) const override {
    if (path == kModelsPath) {
      return learn_models(body, facts);
    }
    if (path == "/version") {
      return learn_version(body, facts);
    }
    if (path == "/openapi.json") {
      learn_routes(body, facts);
      return {};
    }
    if (path == "/kv_event_sources") {
      return learn_vllm_event_sources(body, host_, facts);
    }
    learn_cache(body, facts);
    return {};
  }

  Result<EngineCall> lower(const inference::EngineRequest& request,
                           const EngineFacts& facts) const override {
    if (request.media != nullptr) {
      return lower_vllm_chat(request, facts);
    }
    return generate_ ? lower_vllm_generate(request, facts) : lower_vllm_completion(request, facts);
  }

  std::unique_ptr<EventRaiser> make_raiser(const inference::EngineRequest& request) const override {
    return generate_ || request.media != nullptr ? make_vllm_generate_raiser(request)
                                                 : make_vllm_completion_raiser(request);
  }

  Result<EngineCall> lower_control(const Control& control) const override {
    return lower_vllm_control(control);
  }
  Status read_control(const Control& control, int status, std::string_view body) const override {
    return read_vllm_control(control, status, body);
  }

  std::optional<Duration> lease(const EngineFacts& facts, Duration configured) const override {
    return is_shared_storage(facts) ? std::nullopt : std::optional(configured);
  }

  bool read_load(std::string_view metrics, const EngineFacts& facts,
                 LoadReading& reading) const override {
    const auto running = text::find_metric(metrics, {"vllm:num_requests_running"});
    const auto waiting = text::find_metric(metrics, {"vllm:num_requests_waiting"});
    const auto usage =
        text::find_metric(metrics, {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"});
    const auto count = [&](std::string_view newer, std::string_view older) {
      return static_cast<uint64_t>(text::find_metric(metrics, {newer, older}).value_or(0));
    };
    LoadReport& load = reading.load;
    load.running = static_cast<uint32_t>(running.value_or(0));
    load.waiting = static_cast<uint32_t>(waiting.value_or(0));
    load.kv_total_blocks = facts.total_blocks;
    load.kv_used_blocks =
        static_cast<uint32_t>(std::lround(usage.value_or(0) * facts.total_blocks));
    load.prefix_hit_tokens =
        count("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total");
    load.prefix_query_tokens =
        count("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total");
    load.preemptions = count("vllm:num_preemptions_total", "vllm:num_preemptions");
    reading.process_start_s =
        text::find_metric(metrics, {"process_start_time_seconds"}).value_or(0);
    if (const auto awake =
            text::find_lowest(metrics, "vllm:engine_sleep_state", R"(sleep_state="awake")")) {
      reading.asleep = *awake == 0;
    }
    return running.has_value() || usage.has_value();
  }

 private:
  const bool generate_;
  const std::string host_;
};

}  // namespace

std::unique_ptr<Dialect> make_vllm_dialect(const DialectOptions& options) {
  return std::make_unique<VllmDialect>(options);
}

}  // namespace stator::engine::adapters
