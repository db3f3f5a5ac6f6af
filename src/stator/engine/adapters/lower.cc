// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "stator/engine/core/engine_config.h"
#include "stator/engine/core/phase.h"
#include "stator/structured/read_request.h"

namespace stator::engine::adapters {
namespace {

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

struct Wish {
  bool asked;
  bool able;
  std::string_view name;
};

Status check_options(const inference::EngineRequest& request, const Traits& traits) {
  const inference::SamplingParams& sampling = request.sampling;
  const Wish wishes[] = {
      {sampling.seed.has_value(), traits.seed, "seed"},
      {request.stop.min_tokens > 0, traits.min_tokens, "min_tokens"},
      {request.stop.ignore_eos, traits.ignore_eos, "ignore_eos"},
      {!request.stop.stop_token_ids.empty(), traits.stop_token_ids, "stop_token_ids"},
      {sampling.top_k > 0, traits.extended_sampling, "top_k"},
      {sampling.min_p > 0, traits.extended_sampling, "min_p"},
      {sampling.repetition_penalty != 1, traits.extended_sampling, "repetition_penalty"},
      {sampling.presence_penalty != 0, traits.penalties, "presence_penalty"},
      {sampling.frequency_penalty != 0, traits.penalties, "frequency_penalty"},
      {!sampling.logit_bias.empty(), traits.logit_bias, "logit_bias"},
      {!request.cache_salt.empty(), traits.cache_salt, "cache_salt"},
      {sampling.logprobs.has_value(), traits.logprobs_max >= 0, "logprobs"},
  };
  for (const Wish& wish : wishes) {
    if (wish.asked && !wish.able) {
      return Error(Code::kUnsupported,
                   fmt::format("engine '{}' cannot honour {}: leave it out, or use a model on "
                               "another engine",
                               traits.kind, wish.name));
    }
  }
  if (sampling.logprobs && std::cmp_greater(*sampling.logprobs, traits.logprobs_max)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("logprobs is {}, engine '{}' gives at most {} per token",
                             *sampling.logprobs, traits.kind, traits.logprobs_max));
  }
  return {};
}

Status check_continuation(const inference::EngineRequest& request, const Traits& traits) {
  if (request.generated == 0) {
    return {};
  }
  const auto cannot = [&](std::string_view why) {
    return Error(Code::kUnsupported,
                 fmt::format("engine '{}' cannot continue an answer {} after {} tokens: retry the "
                             "request",
                             traits.kind, why, request.generated));
  };
  if (!request.structured_outputs.empty()) {
    return cannot("of a given structure");
  }
  if (request.media != nullptr) {
    return cannot("to images, audio or video");
  }
  if (request.sampling.presence_penalty != 0 || request.sampling.frequency_penalty != 0) {
    return cannot("with presence or frequency penalties");
  }
  return {};
}

}  // namespace

Status check_request(const inference::EngineRequest& request, const Traits& traits,
                     const EngineFacts& facts, uint32_t vocab_size) {
  if (request.dp_rank && *request.dp_rank >= facts.dp_size) {
    return Error(Code::kInvalidArgument,
                 fmt::format("data-parallel rank {} is not there: the engine has {}",
                             *request.dp_rank, facts.dp_size));
  }
  EngineConfig config;
  config.kind = traits.kind;
  config.max_model_len =
      facts.max_model_len > 0 ? facts.max_model_len : std::numeric_limits<uint32_t>::max();
  config.structured_output = traits.structured_output;
  config.prompt_logprobs = traits.prompt_logprobs;
  config.media = traits.media;
  config.supports_lora = traits.lora;
  config.token_filters = traits.token_filters;
  config.takes_phases = true;  // see check_phase()
  STATOR_CHECK(validate(request, config, vocab_size));
  STATOR_CHECK(check_phase(request.phase, request.handoff.kind, facts.handoff, traits.kind));
  STATOR_CHECK(check_options(request, traits));
  return check_continuation(request, traits);
}

uint32_t tokens_left(const inference::EngineRequest& request, const EngineFacts& facts) {
  const uint32_t wanted = request.stop.max_tokens - request.generated;
  if (facts.max_model_len == 0) {
    return wanted;
  }
  return std::min(wanted, facts.max_model_len - static_cast<uint32_t>(request.tokens.size()));
}

uint32_t min_tokens_left(const inference::EngineRequest& request) {
  return request.stop.min_tokens - std::min(request.stop.min_tokens, request.generated);
}

std::vector<TokenId> stop_tokens(const inference::EngineRequest& request) {
  std::vector<TokenId> out = request.stop.stop_token_ids;
  if (!request.stop.ignore_eos) {
    const auto& eos = request.stop.eos_token_ids;
    out.insert(out.end(), eos.begin(), eos.end());
  }
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

bool is_stop_token(const inference::StopConditions& stop, TokenId token) {
  return is_client_stop(stop, token) || (!stop.ignore_eos && contains(stop.eos_token_ids, token));
}

bool is_client_stop(const inference::StopConditions& stop, TokenId token) {
  return contains(stop.stop_token_ids, token) &&
         (stop.ignore_eos || !contains(stop.eos_token_ids, token));
}

std::string request_name(const inference::EngineRequest& request) {
  if (request.phase != inference::Phase::kWhole) {
    return fmt::format("st-h{:x}", request.handoff.id);
  }
  const inference::RequestKey& key = request.key;
  return fmt::format("st-{:x}-{}", key.request.value(), key.attempt.value());
}

void write_tokens(json::Writer& json, std::span<const TokenId> tokens) {
  std::string text = "[";
  text.reserve(tokens.size() * 7 + 2);
  for (const TokenId token : tokens) {
    fmt::format_to(std::back_inserter(text), "{},", token);
  }
  if (tokens.empty()) {
    text += ']';
  } else {
    text.back() = ']';
  }
  json.raw(text);
}

void write_logit_bias(json::Writer& json, const inference::SamplingParams& sampling) {
  json.begin_object();
  for (const auto& [token, bias] : sampling.logit_bias) {
    json.key_escaped(std::to_string(token)).value(bias);
  }
  json.end_object();
}

Result<std::vector<structured::EngineField>> lower_structured(
    const inference::EngineRequest& request, structured::Dialect dialect) {
  if (request.structured_outputs.empty()) {
    return std::vector<structured::EngineField>();
  }
  const structured::SourceField source[] = {{"structured_outputs", request.structured_outputs}};
  auto read = structured::read_structured_output(source);
  if (!read) {
    return std::move(read.error()).to_error();
  }
  if (!*read) {
    return std::vector<structured::EngineField>();
  }
  (*read)->require_reasoning = request.require_reasoning;
  auto fields = structured::lower(**read, dialect);
  if (!fields) {
    return std::move(fields.error()).to_error();
  }
  return std::move(*fields);
}

void write_fields(json::Writer& json, std::span<const structured::EngineField> fields,
                  structured::EngineField::Place place) {
  for (const structured::EngineField& field : fields) {
    if (field.place == place) {
      json.key(field.name).raw(field.json);
    }
  }
}

namespace {

bool is_header_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c != 0x7f; });
}

bool is_header_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

EngineCall with_context(EngineCall call, const inference::RequestContext* context) {
  if (context == nullptr) {
    return call;
  }
  const auto add = [&call](std::string name, const std::string& value) {
    if (!value.empty() && is_header_value(value)) {
      call.headers.emplace_back(std::move(name), value);
    }
  };
  add("traceparent", context->traceparent);
  add("tracestate", context->tracestate);
  for (const auto& [name, value] : context->metadata) {
    if (is_header_name(name)) {
      add("x-dynamo-meta-" + name, value);
    }
  }
  return call;
}

}  // namespace stator::engine::adapters
