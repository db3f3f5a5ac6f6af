// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prompt_encoder.h"

#include "stator/chat_template/reasoning_args.h"
#include "stator/core/histogram_bounds.h"

namespace stator::frontend {
namespace {

using api::ApiError;
using api::ApiResult;
using tokenizer::PromptIds;

// .001 · 2^n, as the reference has it.
constexpr auto kHashingMs = geometric_bounds<15>(0.001, 2);

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

PromptEncoder::PromptEncoder(const FrontendConfig& config, const Clock& clock, Metrics& metrics,
                             net::ComputePool* pool)
    : clock_(clock),
      metrics_(metrics),
      metrics_prefix_(config.metrics_prefix),
      hashing_ms_(metrics.histogram("dynamo_router_overhead_block_hashing_ms",
                                    "milliseconds to hash a prompt's new blocks, each alone and "
                                    "chained, in one pass",
                                    kHashingMs)),
      texts_(clock, metrics, metrics_prefix_) {
  if (config.tokenizer_cache && config.tokenizer_cache_bytes > 0) {
    const std::string name = metrics_prefix_ + "_tokenizer_cache";
    cache_ = std::make_unique<tokenizer::PrefixCache>(
        config.tokenizer_cache_bytes,
        tokenizer::PrefixCache::Counters{
            .hits = metrics.counter(name + "_hits_total", "prompts with a known beginning"),
            .misses = metrics.counter(name + "_misses_total", "prompts without one"),
            .evictions = metrics.counter("stator_frontend_tokenizer_cache_evictions_total",
                                         "segments of prompts dropped to keep the byte bound"),
            .bytes = metrics.gauge("stator_frontend_tokenizer_cache_bytes",
                                   "memory of the prompts that are kept")});
  }
  if (pool != nullptr) {
    run_parts_ = [pool](size_t count, const std::function<void(size_t)>& part) {
      pool->run_parts(count, part);
    };
  }
}

ApiResult<std::string> PromptEncoder::template_arguments(const api::ChatInput& chat) {
  auto extra =
      chat_template::normalize_reasoning_args({.thinking_json = chat.thinking_json,
                                               .reasoning_effort = chat.reasoning_effort,
                                               .kwargs_json = chat.chat_template_kwargs_json,
                                               .default_mode = chat.default_thinking});
  if (!extra) {
    return ApiError(std::move(extra.error()), "chat_template_kwargs");
  }
  return std::move(*extra);
}

ApiResult<std::string> PromptEncoder::render_chat(const api::ChatInput& chat,
                                                  const ServedModel& model, WallTime now,
                                                  const CancelToken* cancel) const {
  if (model.assets->chat_template == nullptr) {
    return ApiError(
        Error(Code::kInvalidArgument,
              "model '" + model.name +
                  "' has no chat template; use /v1/completions or add chat_template.jinja"),
        "model");
  }
  STATOR_TRY(const std::string extra, template_arguments(chat));
  chat_template::RenderInput input;
  input.messages_json = chat.messages_json;
  input.tools_json = chat.tools_json;
  input.documents_json = chat.documents_json;
  input.extra_json = extra;
  input.add_generation_prompt = chat.add_generation_prompt;
  input.continue_final_message = chat.continue_final_message;
  input.now = now;
  input.cancel = cancel;
  const TimePoint begin = clock_.now();
  auto prompt = model.assets->chat_template->render(input);
  texts_.rendered(begin);
  if (!prompt) {
    return ApiError(std::move(prompt.error()), "messages");
  }
  return std::move(*prompt);
}

ApiResult<PromptIds> PromptEncoder::encode_text(std::string text, const ServedModel& model,
                                                const TextOptions& options) const {
  if (text.contains('\0')) {
    std::erase(text, '\0');
  }
  const TimePoint begin = clock_.now();
  STATOR_TRY(
      PromptIds prompt,
      tokenizer::encode_prompt(*model.assets->tokenizer, text, {.add_special = options.add_special},
                               {.block_size = model.block_size, .seed = options.hash_seed},
                               {.cache = cache_.get(),
                                .run_parts = run_parts_ ? &run_parts_ : nullptr,
                                .clock = &clock_,
                                .stop = options.stop}));
  texts_.tokenized(begin);
  if (prompt.is_cut_short) {
    return prompt;
  }
  hashing_ms_.observe(milliseconds(prompt.hashing));
  if (cache_ != nullptr && text.size() >= tokenizer::kSegmentBytesMin) {
    count(model.name, prompt);
  }
  return prompt;
}

PromptIds PromptEncoder::hash_ids(std::vector<TokenId> ids, const ServedModel& model,
                                  uint64_t hash_seed) const {
  PromptIds prompt{.ids = std::move(ids), .sequences = {}};
  const TimePoint begin = clock_.now();
  extend_sequences(prompt.ids, model.block_size, hash_seed, prompt.sequences);
  hashing_ms_.observe(milliseconds(clock_.now() - begin));
  return prompt;
}

void PromptEncoder::count(const std::string& model, const PromptIds& prompt) const {
  ModelCounters counters;
  {
    const MutexLock lock(mutex_);
    const auto [entry, fresh] = counters_.try_emplace(model);
    if (fresh) {
      const std::string name = metrics_prefix_ + "_tokenizer_cache";
      entry->second = {
          .cached = metrics_.counter(name + "_cached_tokens_total", "prompt tokens that were known",
                                     {{"model", model}}),
          .uncached = metrics_.counter(name + "_uncached_tokens_total",
                                       "prompt tokens that were encoded", {{"model", model}})};
    }
    counters = entry->second;
  }
  counters.cached.add(prompt.cached_ids);
  counters.uncached.add(prompt.ids.size() - prompt.cached_ids);
}

}  // namespace stator::frontend
