// SPDX-License-Identifier: Apache-2.0
#include "stator/session/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "stator/api/request_parser.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/detail/media_wire.h"

namespace stator::session::wire {
namespace {

namespace pb = worker::v1;

// What `api` accepts fits onto the wire, so that a request means the same in process and remotely.
static_assert(api::kMaxCacheSaltBytes <= kNameBytesMax);
static_assert(api::kMaxLogitBiases <= kListEntriesMax && api::kMaxStops <= kListEntriesMax &&
              api::kMaxBadWords <= kListEntriesMax && api::kMaxBadWordBytes <= kNameBytesMax);
static_assert(api::kMaxTopLogprobs <= kLogprobsMax && api::kMaxCompletionLogprobs <= kLogprobsMax);

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("worker protocol: {}", what)};
}

Error too_large(std::string_view field, size_t count, size_t count_max) {
  return {Code::kTooLarge, fmt::format("worker protocol: {} has {} entries, at most {} are read",
                                       field, count, count_max)};
}

// Enums: the wire value is ours plus one, so that 0 stays "not sent".
template <typename Enum, int kCount>
Result<Enum> decode_enum(int value, std::string_view field) {
  if (value < 1 || value > kCount) {
    return corrupt(fmt::format("{} has the unknown value {}", field, value));
  }
  return static_cast<Enum>(value - 1);
}

template <typename Enum>
auto encode_enum(auto value) {
  return static_cast<Enum>(static_cast<int>(value) + 1);
}

template <typename Message>
Result<inference::RequestKey> decode_key(const Message& in) {
  if (in.attempt() > std::numeric_limits<uint16_t>::max()) {
    return corrupt(fmt::format("attempt {} is beyond 65535", in.attempt()));
  }
  return inference::RequestKey{RequestId(in.request()),
                               Attempt(static_cast<uint16_t>(in.attempt()))};
}

template <typename Message>
void encode_key(const inference::RequestKey& key, Message& out) {
  out.set_request(key.request.value());
  out.set_attempt(key.attempt.value());
}

void encode_tokens(const std::vector<TokenId>& tokens, auto* out) {
  out->Add(tokens.begin(), tokens.end());
}

Status check_count(std::string_view field, int count, size_t count_max) {
  if (static_cast<size_t>(count) > count_max) {
    return too_large(field, static_cast<size_t>(count), count_max);
  }
  return {};
}

Status check_name(std::string_view field, const std::string& text) {
  if (text.size() > kNameBytesMax) {
    return too_large(field, text.size(), kNameBytesMax);
  }
  return {};
}

void encode_sampling(const inference::SamplingParams& sampling, pb::Sampling& out) {
  out.set_temperature(sampling.temperature);
  out.set_top_p(sampling.top_p);
  out.set_top_k(sampling.top_k);
  out.set_min_p(sampling.min_p);
  out.set_presence_penalty(sampling.presence_penalty);
  out.set_frequency_penalty(sampling.frequency_penalty);
  out.set_repetition_penalty(sampling.repetition_penalty);
  if (sampling.seed) {
    out.set_seed(*sampling.seed);
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    out.add_bias_tokens(token);
    out.add_bias_values(bias);
  }
  if (sampling.logprobs) {
    out.set_logprobs(*sampling.logprobs);
  }
  encode_tokens(sampling.allowed_token_ids, out.mutable_allowed_tokens());
  for (const std::string& word : sampling.bad_words) {
    out.add_bad_words(word);
  }
}

Status check_sampling(const pb::Sampling& in) {
  // Written so that NaN is in no range.
  const auto within = [](float value, float low, float high) {
    return value >= low && value <= high;
  };
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  constexpr float kAny = std::numeric_limits<float>::max();
  struct {
    std::string_view field;
    bool good;
  } const fields[] = {
      {"temperature (0 or more)", within(in.temperature(), 0, kAny)},
      {"top_p (above 0, at most 1)", within(in.top_p(), kSmallest, 1)},
      {"min_p (from 0 to 1)", within(in.min_p(), 0, 1)},
      {"presence_penalty (finite)", within(in.presence_penalty(), -kAny, kAny)},
      {"frequency_penalty (finite)", within(in.frequency_penalty(), -kAny, kAny)},
      {"repetition_penalty (above 0)", within(in.repetition_penalty(), kSmallest, kAny)},
      {"bias_values (finite)",
       std::ranges::all_of(in.bias_values(),
                           [&](float value) { return within(value, -kAny, kAny); })},
  };
  for (const auto& [field, good] : fields) {
    if (!good) {
      return corrupt(fmt::format("sampling.{} is out of its range", field));
    }
  }
  STATOR_CHECK(check_count("sampling.bias_tokens", in.bias_tokens_size(), kListEntriesMax));
  if (in.bias_tokens_size() != in.bias_values_size()) {
    return corrupt("sampling.bias_tokens and bias_values differ in length");
  }
  STATOR_CHECK(
      check_count("sampling.allowed_tokens", in.allowed_tokens_size(), api::kMaxAllowedTokens));
  STATOR_CHECK(check_count("sampling.bad_words", in.bad_words_size(), kListEntriesMax));
  for (const std::string& word : in.bad_words()) {
    STATOR_CHECK(check_name("sampling.bad_words", word));
  }
  if (in.has_logprobs() && in.logprobs() > kLogprobsMax) {
    return too_large("sampling.logprobs", in.logprobs(), kLogprobsMax);
  }
  return {};
}

Result<inference::SamplingParams> decode_sampling(const pb::Sampling& in) {
  STATOR_CHECK(check_sampling(in));
  inference::SamplingParams sampling;
  sampling.temperature = in.temperature();
  sampling.top_p = in.top_p();
  sampling.top_k = in.top_k();
  sampling.min_p = in.min_p();
  sampling.presence_penalty = in.presence_penalty();
  sampling.frequency_penalty = in.frequency_penalty();
  sampling.repetition_penalty = in.repetition_penalty();
  if (in.has_seed()) {
    sampling.seed = in.seed();
  }
  sampling.logit_bias.reserve(static_cast<size_t>(in.bias_tokens_size()));
  for (int i = 0; i < in.bias_tokens_size(); ++i) {
    sampling.logit_bias.emplace_back(in.bias_tokens(i), in.bias_values(i));
  }
  if (in.has_logprobs()) {
    sampling.logprobs = in.logprobs();
  }
  sampling.allowed_token_ids.assign(in.allowed_tokens().begin(), in.allowed_tokens().end());
  sampling.bad_words.assign(in.bad_words().begin(), in.bad_words().end());
  return sampling;
}

void encode_stop(const inference::StopConditions& stop, pb::Stop& out) {
  out.set_max_tokens(stop.max_tokens);
  out.set_min_tokens(stop.min_tokens);
  out.set_ignore_eos(stop.ignore_eos);
  encode_tokens(stop.stop_token_ids, out.mutable_stop_token_ids());
  encode_tokens(stop.eos_token_ids, out.mutable_eos_token_ids());
}

Result<inference::StopConditions> decode_stop(const pb::Stop& in) {
  STATOR_CHECK(check_count("stop.stop_token_ids", in.stop_token_ids_size(), kListEntriesMax));
  STATOR_CHECK(check_count("stop.eos_token_ids", in.eos_token_ids_size(), kListEntriesMax));
  if (in.max_tokens() == 0) {
    return corrupt("stop.max_tokens is 0");
  }
  inference::StopConditions stop;
  stop.max_tokens = in.max_tokens();
  stop.min_tokens = in.min_tokens();
  stop.ignore_eos = in.ignore_eos();
  stop.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  stop.eos_token_ids.assign(in.eos_token_ids().begin(), in.eos_token_ids().end());
  return stop;
}

// Rejected and Failure have the same fields.
template <typename Message>
void encode_failure(const inference::Failure& failure, Message& out) {
  encode_key(failure.key, out);
  const std::string_view code = failure.error.info().name;
  out.set_code(code.data(), code.size());
  out.set_message(failure.error.message().substr(0, kErrorTextBytesMax));
}

template <typename Message>
Result<inference::Failure> decode_failure(const Message& in) {
  STATOR_TRY(const inference::RequestKey key, decode_key(in));
  std::string text = in.message().substr(0, kErrorTextBytesMax);
  return inference::Failure{key, Error(code_from_name(in.code()), std::move(text))};
}

void encode_delta(const inference::Delta& delta, pb::Delta& out) {
  encode_key(delta.key, out);
  out.set_offset(delta.offset);
  out.set_token_count(delta.token_count);
  out.set_cached_tokens(delta.cached_tokens);
  out.set_queued_us(delta.queued_us);
  out.set_finish(static_cast<pb::FinishReason>(delta.finish));
  out.set_stopped_by_token(delta.stopped_by_token);
}

Result<inference::Delta> decode_delta(const pb::Delta& in, uint32_t token_begin) {
  inference::Delta delta;
  STATOR_TRY(delta.key, decode_key(in));
  // FinishReason is the one enum whose 0 is meaningful, so it is not shifted.
  static_assert(static_cast<int>(inference::FinishReason::kError) == pb::FINISH_REASON_ERROR);
  if (!pb::FinishReason_IsValid(in.finish())) {
    return corrupt(fmt::format("finish has the unknown value {}", static_cast<int>(in.finish())));
  }
  delta.finish = static_cast<inference::FinishReason>(in.finish());
  delta.offset = in.offset();
  delta.token_begin = token_begin;
  delta.token_count = in.token_count();
  delta.cached_tokens = in.cached_tokens();
  delta.queued_us = in.queued_us();
  delta.stopped_by_token = in.stopped_by_token();
  return delta;
}

void encode_logprob(const inference::TokenLogprob& logprob, pb::TokenLogprob& out) {
  out.set_token(logprob.token);
  out.set_logprob(logprob.logprob);
  out.set_rank(logprob.rank);
}

inference::TokenLogprob decode_logprob(const pb::TokenLogprob& in) {
  return {in.token(), in.logprob(), in.rank()};
}

void encode_logprobs(const inference::TokenLogprobs& logprobs, pb::TokenLogprobs& out) {
  encode_logprob(logprobs.sampled, *out.mutable_sampled());
  for (const inference::TokenLogprob& top : logprobs.top) {
    encode_logprob(top, *out.add_top());
  }
}

Result<inference::TokenLogprobs> decode_logprobs(const pb::TokenLogprobs& in) {
  STATOR_CHECK(check_count("logprobs.top", in.top_size(), kLogprobsMax));
  inference::TokenLogprobs logprobs;
  logprobs.sampled = decode_logprob(in.sampled());
  logprobs.top.reserve(static_cast<size_t>(in.top_size()));
  for (const pb::TokenLogprob& top : in.top()) {
    logprobs.top.push_back(decode_logprob(top));
  }
  return logprobs;
}

void encode_handoff(const inference::Handoff& handoff, pb::Handoff& out) {
  out.set_id(handoff.id);
  out.set_kind(handoff.kind);
  out.set_payload(handoff.payload);
  out.set_lease_ms(handoff.lease_ms);
  out.set_computed_ms(handoff.computed_ms);
}

Result<inference::Handoff> decode_handoff(const pb::Handoff& in) {
  STATOR_CHECK(check_name("handoff.kind", in.kind()));
  if (in.payload().size() > inference::kHandoffBytesMax) {
    return too_large("handoff.payload", in.payload().size(), inference::kHandoffBytesMax);
  }
  return inference::Handoff{.id = in.id(),
                            .kind = in.kind(),
                            .payload = in.payload(),
                            .lease_ms = in.lease_ms(),
                            .computed_ms = in.computed_ms()};
}

Result<inference::Phase> decode_phase(int value) {
  // As FinishReason: 0 is meaningful.
  static_assert(static_cast<int>(inference::Phase::kDecode) == pb::PHASE_DECODE);
  if (!pb::Phase_IsValid(value)) {
    return corrupt(fmt::format("phase has the unknown value {}", value));
  }
  return static_cast<inference::Phase>(value);
}

Status decode_offers(const pb::StepOutput& in, inference::StepOutput& step) {
  STATOR_CHECK(check_count("offers", in.offers_size(), kStepEntriesMax));
  for (const pb::Offer& offer : in.offers()) {
    STATOR_TRY(const inference::RequestKey key, decode_key(offer));
    STATOR_TRY(inference::Handoff handoff, decode_handoff(offer.handoff()));
    step.offers.push_back({key, std::move(handoff)});
  }
  return {};
}

Status decode_prompts(const pb::StepOutput& in, inference::StepOutput& step) {
  STATOR_CHECK(check_count("prompts", in.prompts_size(), kStepEntriesMax));
  for (const pb::PromptLogprobs& prompt : in.prompts()) {
    STATOR_CHECK(check_count("prompts.tokens", prompt.tokens_size(), kRequestTokensMax));
    inference::PromptLogprobs& made = step.prompts.emplace_back();
    STATOR_TRY(made.key, decode_key(prompt));
    made.tokens.reserve(static_cast<size_t>(prompt.tokens_size()));
    for (const pb::TokenLogprobs& token : prompt.tokens()) {
      STATOR_TRY(inference::TokenLogprobs decoded, decode_logprobs(token));
      made.tokens.push_back(std::move(decoded));
    }
  }
  return {};
}

void encode_pool(const inference::PoolRequest& pool, pb::Pool& out) {
  out.set_task(encode_enum<pb::PoolTask>(pool.task));
  out.mutable_lengths()->Add(pool.lengths.begin(), pool.lengths.end());
  out.mutable_first_lengths()->Add(pool.first_lengths.begin(), pool.first_lengths.end());
  for (const std::string& text : pool.texts) {
    out.add_texts(text);
  }
  out.set_raw(!pool.activate);
}

Result<inference::PoolRequest> decode_pool(const pb::Pool& in, size_t tokens) {
  STATOR_CHECK(check_count("pool.lengths", in.lengths_size(), inference::kPoolSequencesMax));
  STATOR_CHECK(check_count("pool.texts", in.texts_size(), 2 * inference::kPoolSequencesMax));
  inference::PoolRequest pool;
  STATOR_TRY(pool.task,
             (decode_enum<inference::PoolTask, pb::PoolTask_MAX>(in.task(), "pool.task")));
  pool.lengths.assign(in.lengths().begin(), in.lengths().end());
  pool.first_lengths.assign(in.first_lengths().begin(), in.first_lengths().end());
  pool.activate = !in.raw();
  uint64_t sum = 0;
  for (const uint32_t length : pool.lengths) {
    if (length == 0) {
      return corrupt("pool.lengths has a sequence without tokens");
    }
    sum += length;
  }
  if (pool.lengths.empty() || sum != tokens) {
    return corrupt(fmt::format("pool.lengths add up to {}, but there are {} tokens", sum, tokens));
  }
  if (!pool.first_lengths.empty() && pool.first_lengths.size() != pool.lengths.size()) {
    return corrupt("pool.first_lengths and lengths differ in length");
  }
  for (size_t i = 0; i < pool.first_lengths.size(); ++i) {
    if (pool.first_lengths[i] > pool.lengths[i]) {
      return corrupt("pool.first_lengths has a part longer than its sequence");
    }
  }
  size_t bytes = 0;
  for (const std::string& text : in.texts()) {
    bytes += text.size();
    pool.texts.push_back(text);
  }
  if (bytes > inference::kPoolTextBytesMax) {
    return too_large("pool.texts (in bytes)", bytes, inference::kPoolTextBytesMax);
  }
  if (const size_t texts = pool.texts.size();
      texts != 0 && texts != pool.lengths.size() && texts != 2 * pool.lengths.size()) {
    return corrupt("pool.texts has neither one nor two texts per sequence");
  }
  return pool;
}

void encode_pooled(const inference::Pooled& pooled, pb::Pooled& out) {
  const inference::PoolAnswer& answer = pooled.answer;
  encode_key(pooled.key, out);
  out.set_width(answer.width);
  out.mutable_rows()->Add(answer.rows.begin(), answer.rows.end());
  out.mutable_values()->Add(answer.values.begin(), answer.values.end());
  out.set_prompt_tokens(answer.prompt_tokens);
}

Status decode_pooled(const pb::StepOutput& in, inference::StepOutput& step) {
  STATOR_CHECK(check_count("pooled", in.pooled_size(), kStepEntriesMax));
  for (const pb::Pooled& pooled : in.pooled()) {
    inference::Pooled& made = step.pooled.emplace_back();
    STATOR_TRY(made.key, decode_key(pooled));
    STATOR_CHECK(check_count("pooled.rows", pooled.rows_size(), inference::kPoolSequencesMax));
    uint64_t rows = 0;
    for (const uint32_t count : pooled.rows()) {
      rows += count;
    }
    const auto values = static_cast<uint64_t>(pooled.values_size());
    const uint64_t width = pooled.width();
    if (width == 0 || values % width != 0 || (rows != 0 && rows != values / width)) {
      return corrupt(fmt::format("pooled has {} values in rows of {}", values, width));
    }
    if (!std::ranges::all_of(pooled.values(), [](float value) { return std::isfinite(value); })) {
      return corrupt("pooled.values has a number that is not finite");
    }
    made.answer = {.width = pooled.width(),
                   .rows = {pooled.rows().begin(), pooled.rows().end()},
                   .values = {pooled.values().begin(), pooled.values().end()},
                   .prompt_tokens = pooled.prompt_tokens()};
  }
  return {};
}

void encode_context(const inference::RequestContext& context, pb::Context& out) {
  out.set_traceparent(context.traceparent);
  out.set_tracestate(context.tracestate);
  for (const auto& [name, value] : context.metadata) {
    (*out.mutable_metadata())[name] = value;
  }
  out.set_session(context.session);
  out.set_parent_session(context.parent_session);
  out.set_session_final(context.session_final);
}

Result<std::shared_ptr<const inference::RequestContext>> decode_context(const pb::Context& in) {
  using Context = inference::RequestContext;
  STATOR_CHECK(check_name("context.traceparent", in.traceparent()));
  STATOR_CHECK(check_name("context.tracestate", in.tracestate()));
  STATOR_CHECK(check_name("context.session", in.session()));
  STATOR_CHECK(check_name("context.parent_session", in.parent_session()));
  if (in.metadata_size() > static_cast<int>(Context::kMetadataMax)) {
    return too_large("context.metadata", static_cast<size_t>(in.metadata_size()),
                     Context::kMetadataMax);
  }
  auto context = std::make_shared<Context>();
  context->traceparent = in.traceparent();
  context->tracestate = in.tracestate();
  context->session = in.session();
  context->parent_session = in.parent_session();
  context->session_final = in.session_final();
  size_t bytes = 0;
  for (const auto& [name, value] : in.metadata()) {
    bytes += name.size() + value.size();
    context->metadata.emplace_back(name, value);
  }
  if (bytes > Context::kMetadataBytesMax) {
    return too_large("context.metadata", bytes, Context::kMetadataBytesMax);
  }
  std::ranges::sort(context->metadata);  // the wire keeps no order
  return context;
}

}  // namespace

void encode(const inference::EngineRequest& request, pb::Submit& out) {
  encode_key(request.key, out);
  encode_tokens(request.tokens, out.mutable_tokens());
  out.set_generated(request.generated);
  encode_sampling(request.sampling, *out.mutable_sampling());
  encode_stop(request.stop, *out.mutable_stop());
  out.set_priority(request.priority);
  out.set_cache_salt(request.cache_salt);
  out.set_lora(request.lora_name);
  out.set_deadline_ms(request.deadline_ms);
  out.set_structured_outputs(request.structured_outputs);
  out.set_require_reasoning(request.require_reasoning);
  out.set_prompt_logprobs(request.prompt_logprobs);
  if (request.dp_rank) {
    out.set_dp_rank(*request.dp_rank);
  }
  if (request.phase != inference::Phase::kWhole) {
    out.set_phase(static_cast<pb::Phase>(request.phase));
    encode_handoff(request.handoff, *out.mutable_handoff());
  }
  if (request.pool) {
    encode_pool(*request.pool, *out.mutable_pool());
  }
  if (request.context != nullptr) {
    encode_context(*request.context, *out.mutable_context());
  }
  out.set_sent_unix_us(request.sent_unix_us);
  if (request.media != nullptr) {
    encode_media(*request.media, *out.mutable_media());
  }
}

Result<inference::EngineRequest> decode(const pb::Submit& in) {
  STATOR_CHECK(check_count("tokens", in.tokens_size(), kRequestTokensMax));
  STATOR_CHECK(check_name("cache_salt", in.cache_salt()));
  STATOR_CHECK(check_name("lora", in.lora()));
  if (in.structured_outputs().size() > kStructuredOutputsBytesMax) {
    return corrupt(fmt::format("structured_outputs has {} bytes, at most {} are read",
                               in.structured_outputs().size(), kStructuredOutputsBytesMax));
  }
  if (in.tokens_size() == 0 || in.generated() > static_cast<uint32_t>(in.tokens_size())) {
    return corrupt(
        fmt::format("{} tokens, of which {} generated", in.tokens_size(), in.generated()));
  }
  inference::EngineRequest request;
  STATOR_TRY(request.key, decode_key(in));
  STATOR_TRY(request.sampling, decode_sampling(in.sampling()));
  STATOR_TRY(request.stop, decode_stop(in.stop()));
  request.tokens.assign(in.tokens().begin(), in.tokens().end());
  request.generated = in.generated();
  request.priority = in.priority();
  request.cache_salt = in.cache_salt();
  request.lora_name = in.lora();
  request.deadline_ms = in.deadline_ms();
  request.structured_outputs = in.structured_outputs();
  request.require_reasoning = in.require_reasoning();
  request.prompt_logprobs = in.prompt_logprobs();
  request.dp_rank = in.has_dp_rank() ? std::optional(in.dp_rank()) : std::nullopt;
  STATOR_TRY(request.phase, decode_phase(in.phase()));
  if (request.phase != inference::Phase::kWhole) {
    STATOR_TRY(request.handoff, decode_handoff(in.handoff()));
  }
  if (in.has_pool()) {
    STATOR_TRY(request.pool, decode_pool(in.pool(), request.tokens.size()));
  }
  if (in.has_context()) {
    STATOR_TRY(request.context, decode_context(in.context()));
  }
  request.sent_unix_us = in.sent_unix_us();
  if (in.has_media()) {
    STATOR_TRY(request.media, decode_media(in.media(), request.tokens.size()));
  }
  return request;
}

void encode(const CancelCommand& cancel, pb::Cancel& out) {
  encode_key(cancel.key, out);
  out.set_reason(encode_enum<pb::CancelReason>(cancel.reason));
}

Result<CancelCommand> decode(const pb::Cancel& in) {
  CancelCommand cancel;
  STATOR_TRY(cancel.key, decode_key(in));
  STATOR_TRY(cancel.reason,
             (decode_enum<CancelReason, pb::CancelReason_MAX>(in.reason(), "cancel reason")));
  return cancel;
}

void encode(const inference::Failure& failure, pb::Rejected& out) {
  encode_failure(failure, out);
}

Result<inference::Failure> decode(const pb::Rejected& in) {
  return decode_failure(in);
}

void encode(const inference::StepOutput& step, pb::StepOutput& out) {
  out.mutable_tokens()->Reserve(static_cast<int>(step.tokens.size()));
  for (const inference::Delta& delta : step.deltas) {
    encode_delta(delta, *out.add_deltas());
    const std::span<const TokenId> tokens = step.tokens_of(delta);
    out.mutable_tokens()->Add(tokens.begin(), tokens.end());
    for (const inference::TokenLogprobs& logprobs : step.logprobs_of(delta)) {
      encode_logprobs(logprobs, *out.add_logprobs());
    }
  }
  for (const inference::Failure& failure : step.failures) {
    encode_failure(failure, *out.add_failures());
  }
  for (const inference::Offer& offer : step.offers) {
    pb::Offer& made = *out.add_offers();
    encode_key(offer.key, made);
    encode_handoff(offer.handoff, *made.mutable_handoff());
  }
  for (const inference::PromptLogprobs& prompt : step.prompts) {
    pb::PromptLogprobs& made = *out.add_prompts();
    encode_key(prompt.key, made);
    for (const inference::TokenLogprobs& token : prompt.tokens) {
      encode_logprobs(token, *made.add_tokens());
    }
  }
  for (const inference::Pooled& pooled : step.pooled) {
    encode_pooled(pooled, *out.add_pooled());
  }
}

Result<inference::StepOutput> decode(const pb::StepOutput& in) {
  STATOR_CHECK(check_count("deltas", in.deltas_size(), kStepEntriesMax));
  STATOR_CHECK(check_count("failures", in.failures_size(), kStepEntriesMax));
  if (in.logprobs_size() != 0 && in.logprobs_size() != in.tokens_size()) {
    return corrupt("logprobs are not parallel to tokens");
  }
  inference::StepOutput step;
  step.deltas.reserve(static_cast<size_t>(in.deltas_size()));
  uint64_t tokens = 0;
  for (const pb::Delta& delta : in.deltas()) {
    STATOR_TRY(inference::Delta decoded, decode_delta(delta, static_cast<uint32_t>(tokens)));
    step.deltas.push_back(decoded);
    tokens += delta.token_count();
    if (tokens > static_cast<uint64_t>(in.tokens_size())) {
      return corrupt("deltas claim more tokens than the message has");
    }
  }
  if (tokens != static_cast<uint64_t>(in.tokens_size())) {
    return corrupt("tokens that belong to no delta");
  }
  step.tokens.assign(in.tokens().begin(), in.tokens().end());
  step.logprobs.reserve(static_cast<size_t>(in.logprobs_size()));
  for (const pb::TokenLogprobs& logprobs : in.logprobs()) {
    STATOR_TRY(inference::TokenLogprobs decoded, decode_logprobs(logprobs));
    step.logprobs.push_back(std::move(decoded));
  }
  for (const pb::Failure& failure : in.failures()) {
    STATOR_TRY(inference::Failure decoded, decode_failure(failure));
    step.failures.push_back(std::move(decoded));
  }
  STATOR_CHECK(decode_offers(in, step));
  STATOR_CHECK(decode_prompts(in, step));
  STATOR_CHECK(decode_pooled(in, step));
  return step;
}

void encode(const engine::LoadReport& load, pb::LoadReport& out) {
  out.set_kv_used_blocks(load.kv_used_blocks);
  out.set_kv_cached_blocks(load.kv_cached_blocks);
  out.set_kv_total_blocks(load.kv_total_blocks);
  out.set_running(load.running);
  out.set_waiting(load.waiting);
  out.set_prefix_hit_tokens(load.prefix_hit_tokens);
  out.set_prefix_query_tokens(load.prefix_query_tokens);
  out.set_preemptions(load.preemptions);
}

engine::LoadReport decode(const pb::LoadReport& in) {
  engine::LoadReport load;
  load.kv_used_blocks = in.kv_used_blocks();
  load.kv_cached_blocks = in.kv_cached_blocks();
  load.kv_total_blocks = in.kv_total_blocks();
  load.running = in.running();
  load.waiting = in.waiting();
  load.prefix_hit_tokens = in.prefix_hit_tokens();
  load.prefix_query_tokens = in.prefix_query_tokens();
  load.preemptions = in.preemptions();
  return load;
}

}  // namespace stator::session::wire
