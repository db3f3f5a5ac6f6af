// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <limits>

#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/media.h"
#include "stator/engine/adapters/vllm.h"

namespace stator::engine::adapters {
namespace {

using structured::EngineField;
using Place = EngineField::Place;

// Tells our salts from other extra keys in the engine's KV events.
constexpr std::string_view kSaltTag = "stator-salt:";

/// Before 0.12 constraints had other names, which later servers silently ignore.
structured::Dialect constraint_dialect(std::string_view version) {
  uint32_t major = 0;
  uint32_t minor = 0;
  const char* end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' ||
      std::from_chars(first.ptr + 1, end, minor).ec != std::errc()) {
    return structured::Dialect::kVllm;
  }
  return major == 0 && minor < 12 ? structured::Dialect::kVllmGuided : structured::Dialect::kVllm;
}

/// Of these lengths vLLM's ExampleConnector counts the stored blocks wrongly (by its source, 0.32):
/// of a prompt of one token it believes less than none to be there, and the server ends.
bool is_miscounted_by_storage(const inference::EngineRequest& request, const EngineFacts& facts) {
  return is_shared_storage(facts) &&
         (request.tokens.size() - 1) % std::max(facts.block_size, 1U) == 0;
}

/// The members of vLLM's sampling parameters: at the root of /v1/completions, inside
/// sampling_params of /inference/v1/generate. All of them, because a server may have defaults of
/// its own for what is left out.
void write_sampling(json::Writer& json, const inference::EngineRequest& request,
                    const EngineFacts& facts) {
  const inference::SamplingParams& sampling = request.sampling;
  const bool chat = request.media != nullptr;
  if (!chat || !fills_context(request, facts.max_model_len)) {
    json.key("max_tokens").value(tokens_left(request, facts));
  }
  json.key("temperature").value(sampling.temperature);
  json.key("top_p").value(sampling.top_p);
  json.key("top_k").value(std::max(sampling.top_k, 0));
  json.key("min_p").value(sampling.min_p);
  json.key("presence_penalty").value(sampling.presence_penalty);
  json.key("frequency_penalty").value(sampling.frequency_penalty);
  json.key("repetition_penalty").value(sampling.repetition_penalty);
  if (sampling.seed) {
    json.key("seed").value(*sampling.seed);
  }
  json.key("ignore_eos").value(request.stop.ignore_eos);
  json.key("min_tokens").value(min_tokens_left(request));
  json.key("stop_token_ids");
  write_tokens(json, stop_tokens(request));
  if (!sampling.logit_bias.empty()) {
    json.key("logit_bias");
    write_logit_bias(json, sampling);
  }
  if (!sampling.allowed_token_ids.empty()) {
    json.key("allowed_token_ids");
    write_tokens(json, sampling.allowed_token_ids);
  }
  if (!sampling.bad_words.empty()) {
    json.key("bad_words").begin_array();
    for (const std::string& word : sampling.bad_words) {
      json.value(word);
    }
    json.end_array();
  }
  if (sampling.logprobs && chat) {
    json.key("logprobs").value(true).key("top_logprobs").value(*sampling.logprobs);
  } else if (sampling.logprobs) {
    json.key("logprobs").value(*sampling.logprobs);
  }
  if (request.prompt_logprobs) {
    json.key("prompt_logprobs").value(sampling.logprobs.value_or(0));
  } else if (is_miscounted_by_storage(request, facts)) {
    // The one wish on both routes with which vLLM computes a prompt without asking any cache.
    json.key("prompt_logprobs").value(0);
  }
}

/// What a prefill server is told: keep the blocks for somebody who will name them.
constexpr std::string_view kGive =
    R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,)"
    R"("remote_block_ids":null,"remote_host":null,"remote_port":null})";

/// What stands beside them on both routes.
void write_envelope(json::Writer& json, const inference::EngineRequest& request,
                    const EngineFacts& facts) {
  json.key("model").value(request.lora_name.empty() ? facts.model : request.lora_name);
  json.key("request_id").value(request_name(request));
  // Only an answer in one piece says where the prompt's blocks are, or how likely its tokens.
  const bool stream = request.phase != inference::Phase::kPrefill && !request.prompt_logprobs;
  json.key("stream").value(stream);
  if (stream) {
    json.key("stream_options").raw(R"({"include_usage":true})");
  }
  if (request.phase == inference::Phase::kPrefill && !is_shared_storage(facts)) {
    json.key("kv_transfer_params").raw(kGive);
  } else if (request.phase == inference::Phase::kDecode && !request.handoff.payload.empty()) {
    json.key("kv_transfer_params").raw(request.handoff.payload);
  }
  if (request.priority != 0) {
    // vLLM runs small values first.
    json.key("priority").value(-static_cast<int64_t>(request.priority));
  }
  if (!request.cache_salt.empty()) {
    json.key("cache_salt").value(std::string(kSaltTag) + request.cache_salt);
  }
}

EngineCall make_call(std::string_view path, const inference::EngineRequest& request) {
  EngineCall call{.path = std::string(path)};
  if (request.dp_rank) {
    call.headers.emplace_back("X-data-parallel-rank", std::to_string(*request.dp_rank));
  }
  return call;
}

/// What both OpenAI routes have after the prompt, and the end of the body.
void write_rest(json::Writer& json, const inference::EngineRequest& request,
                const EngineFacts& facts, std::span<const structured::EngineField> fields) {
  json.key("return_token_ids").value(true);
  write_sampling(json, request, facts);
  if (request.sampling.logprobs) {
    json.key("return_tokens_as_token_ids").value(true);
  }
  write_fields(json, fields, Place::kSampling);
  write_fields(json, fields, Place::kBody);
  json.end_object();
}

}  // namespace

bool is_shared_storage(const EngineFacts& facts) {
  return facts.handoff.kind.find("/shared/") != std::string::npos;
}

Result<EngineCall> lower_vllm_completion(const inference::EngineRequest& request,
                                         const EngineFacts& facts) {
  STATOR_TRY(const auto fields, lower_structured(request, constraint_dialect(facts.version)));
  EngineCall call = make_call("/v1/completions", request);
  json::Writer json(call.body);
  json.begin_object();
  write_envelope(json, request, facts);
  json.key("prompt");
  write_tokens(json, request.tokens);
  write_rest(json, request, facts, fields);
  return call;
}

Result<EngineCall> lower_vllm_chat(const inference::EngineRequest& request,
                                   const EngineFacts& facts) {
  STATOR_TRY(const auto fields, lower_structured(request, constraint_dialect(facts.version)));
  EngineCall call = make_call("/v1/chat/completions", request);
  json::Writer json(call.body);
  json.begin_object();
  write_envelope(json, request, facts);
  STATOR_CHECK(write_chat(json, *request.media, PartStyle::kVllm));
  write_rest(json, request, facts, fields);
  return call;
}

Result<EngineCall> lower_vllm_generate(const inference::EngineRequest& request,
                                       const EngineFacts& facts) {
  STATOR_TRY(const auto fields, lower_structured(request, structured::Dialect::kVllm));
  EngineCall call = make_call("/inference/v1/generate", request);
  json::Writer json(call.body);
  json.begin_object();
  write_envelope(json, request, facts);
  json.key("token_ids");
  write_tokens(json, request.tokens);
  json.key("sampling_params").begin_object();
  write_sampling(json, request, facts);
  write_fields(json, fields, Place::kSampling);
  json.end_object();
  write_fields(json, fields, Place::kBody);
  json.end_object();
  return call;
}

}  // namespace stator::engine::adapters
