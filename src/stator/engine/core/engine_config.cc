// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/engine/core/lazy_adapters.h"
#include "stator/kv/block_identity.h"

namespace stator::engine {
namespace {

constexpr uint32_t kBlockSizeMax = 1024;
constexpr uint32_t kHostBlocksMax = 1U << 30;
constexpr uint32_t kSequencesMax = 65'536;
constexpr uint32_t kDraftTokensMax = 16;

Status check_range(std::string_view key, uint64_t value, uint64_t min, uint64_t max) {
  if (value < min || value > max) {
    return Error(Code::kInvalidArgument,
                 fmt::format("engine config: {} is {}, must be {} … {}", key, value, min, max));
  }
  return {};
}

Status refuse(std::string message) {
  return Error(Code::kInvalidArgument, std::move(message));
}

Status check_vocabulary(const inference::EngineRequest& request, uint32_t vocab_size) {
  const auto unknown = std::find_if(request.tokens.begin(), request.tokens.end(),
                                    [=](TokenId token) { return token >= vocab_size; });
  if (unknown != request.tokens.end()) {
    return refuse(fmt::format("token id {} at position {} is outside the model's vocabulary of {}",
                              *unknown, unknown - request.tokens.begin(), vocab_size));
  }
  return {};
}

}  // namespace

Result<EngineConfig> resolve(EngineConfig config, uint32_t runner_max_model_len) {
  if (config.max_model_len == 0) {
    config.max_model_len = runner_max_model_len;
  }
  STATOR_CHECK(check_range("block_size", config.block_size, 1, kBlockSizeMax));
  STATOR_CHECK(check_range("total_blocks", config.total_blocks, 1, UINT32_MAX - 1));
  STATOR_CHECK(check_range("host_blocks", config.host_blocks, 0, kHostBlocksMax));
  STATOR_CHECK(check_range("max_model_len", config.max_model_len, 2, runner_max_model_len));
  STATOR_CHECK(check_range("max_num_seqs", config.max_num_seqs, 1, kSequencesMax));
  STATOR_CHECK(check_range("max_num_batched_tokens", config.max_num_batched_tokens,
                           config.max_num_seqs, UINT32_MAX));
  STATOR_CHECK(check_range("waiting_max", config.waiting_max, 1, UINT32_MAX));
  STATOR_CHECK(check_range("draft_tokens", config.draft_tokens, 0, kDraftTokensMax));
  STATOR_CHECK(
      check_range("sglang.max_prefill_tokens", config.sglang.max_prefill_tokens, 1, UINT32_MAX));
  STATOR_CHECK(
      check_range("sglang.clip_max_new_tokens", config.sglang.clip_max_new_tokens, 1, UINT32_MAX));
  if (!(config.sglang.schedule_conservativeness > 0)) {
    return Error(Code::kInvalidArgument,
                 "engine config: sglang.schedule_conservativeness must be above 0");
  }
  const uint64_t pool_tokens = uint64_t{config.total_blocks} * config.block_size;
  if (pool_tokens < config.max_model_len) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("engine config: total_blocks {} of {} tokens hold {} tokens, less than "
                    "max_model_len {}; raise total_blocks or lower max_model_len",
                    config.total_blocks, config.block_size, pool_tokens, config.max_model_len));
  }
  if (!config.enable_chunked_prefill && config.max_num_batched_tokens < config.max_model_len) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("engine config: max_num_batched_tokens {} is less than max_model_len {}; "
                    "raise it or set enable_chunked_prefill",
                    config.max_num_batched_tokens, config.max_model_len));
  }
  return config;
}

namespace {

Status check_filters(const inference::EngineRequest& request, const EngineConfig& config) {
  const auto unsupported = [&](std::string_view name) {
    return Error(
        Code::kUnsupported,
        fmt::format("engine '{}' cannot honour {}: leave it out, or use a model on another "
                    "engine",
                    config.kind, name));
  };
  if (!request.sampling.allowed_token_ids.empty() && !config.token_filters) {
    return unsupported("allowed_token_ids");
  }
  if (!request.sampling.bad_words.empty() && !config.token_filters) {
    return unsupported("bad_words");
  }
  return {};
}

Status check_media(const inference::EngineRequest& request, const EngineConfig& config) {
  if (request.media == nullptr) {
    return {};
  }
  for (const inference::MediaItem& item : request.media->items) {
    if (!config.media.has(item.blob->kind)) {
      return Error(Code::kUnsupported, fmt::format("engine '{}' takes no {} input", config.kind,
                                                   to_string(item.blob->kind)));
    }
  }
  return {};
}

/// Whether its adapter is there. One that would be read first is looked at when it was.
Status check_adapter(const inference::EngineRequest& request, const EngineConfig& config) {
  const auto* const lazy = dynamic_cast<const LazyAdapters*>(config.adapters.get());
  if (lazy != nullptr && !request.lora_name.empty() && lazy->needs_loading(request.lora_name)) {
    return {};
  }
  STATOR_CHECK(find_adapter(request, config));
  return {};
}

}  // namespace

Status validate(const inference::EngineRequest& request, const EngineConfig& config,
                uint32_t vocab_size) {
  if (request.pool) {
    return Error(Code::kUnsupported, fmt::format("engine '{}' only generates", config.kind));
  }
  if (request.tokens.empty()) {
    return refuse("the prompt is empty");
  }
  if (request.tokens.size() >= config.max_model_len) {
    return refuse(
        fmt::format("the prompt has {} tokens; this model takes fewer than {} (max_model_len)",
                    request.tokens.size(), config.max_model_len));
  }
  if (request.generated >= request.tokens.size()) {
    return refuse(fmt::format("generated is {} of {} tokens: at least one must be prompt",
                              request.generated, request.tokens.size()));
  }
  if (request.stop.max_tokens <= request.generated) {
    return refuse(fmt::format("max_tokens is {}, must be more than the {} generated so far",
                              request.stop.max_tokens, request.generated));
  }
  if (request.stop.min_tokens > request.stop.max_tokens) {
    return refuse(fmt::format("min_tokens {} is more than max_tokens {}", request.stop.min_tokens,
                              request.stop.max_tokens));
  }
  STATOR_CHECK(check_adapter(request, config));
  if (!request.lora_name.empty() && config.adapters == nullptr && !config.supports_lora) {
    return refuse(fmt::format("adapter '{}': this engine has no LoRA support", request.lora_name));
  }
  if (!request.structured_outputs.empty() && !config.structured_output) {
    return Error(Code::kUnsupported,
                 fmt::format("engine '{}' cannot follow structured_outputs", config.kind));
  }
  if (request.prompt_logprobs && !config.prompt_logprobs) {
    return Error(
        Code::kUnsupported,
        fmt::format("engine '{}' does not report log-probabilities of prompts", config.kind));
  }
  if (request.prompt_logprobs && (!request.sampling.logprobs || request.generated > 0 ||
                                  request.phase != inference::Phase::kWhole)) {
    return refuse("prompt_logprobs are for whole requests from their start, with logprobs");
  }
  STATOR_CHECK(check_media(request, config));
  STATOR_CHECK(check_filters(request, config));
  if (request.phase != inference::Phase::kWhole && !config.takes_phases) {
    return Error(Code::kUnsupported,
                 fmt::format("engine '{}' neither gives nor takes prompts of others", config.kind));
  }
  return check_vocabulary(request, vocab_size);
}

Result<std::shared_ptr<const Adapter>> find_adapter(const inference::EngineRequest& request,
                                                    const EngineConfig& config) {
  if (config.adapters == nullptr || request.lora_name.empty()) {
    return std::shared_ptr<const Adapter>();
  }
  std::shared_ptr<const Adapter> found = config.adapters->find(request.lora_name);
  if (found == nullptr) {
    return Error(Code::kNotFound,
                 fmt::format("adapter '{}' is not loaded here", request.lora_name));
  }
  return found;
}

std::string owner_of(const inference::EngineRequest& request, const AdapterSource* adapters,
                     const LongPrompts& long_prompts) {
  const auto adapter = adapters != nullptr && !request.lora_name.empty()
                           ? adapters->find(request.lora_name)
                           : std::shared_ptr<const Adapter>();
  const std::string name = adapter == nullptr
                               ? request.lora_name
                               : fmt::format("{}@{}", request.lora_name, adapter->identity());
  std::string owner = kv::block_owner(name, request.cache_salt);
  const size_t prompt = request.tokens.size() - request.generated;
  if (prompt > long_prompts.longer_than) {
    owner += long_prompts.by_length ? fmt::format("\nlong {}", prompt) : "\nlong";
  }
  return owner;
}

}  // namespace stator::engine
