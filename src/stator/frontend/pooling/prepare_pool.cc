// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/pooling/prepare_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stator/tokenizer/frame_text.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {
namespace {

using api::ApiError;
using api::ApiResult;
using api::ApiStatus;
using api::PoolInput;
using api::PoolKind;
using inference::PoolTask;

// A part: long enough that what surrounds it does not count, short enough that workers share a
// large request and one pass of an engine holds it.
constexpr size_t kPartSequencesMax = 128;
constexpr size_t kPartTokensMax = 8192;
// Of one request.
constexpr size_t kTokensMax = size_t{2} << 20;
// As in GenerationPlan: a longer x-request-id is not echoed.
constexpr size_t kRequestIdBytesMax = 256;

std::string_view inputs_field(PoolKind kind) {
  return api::field_names(kind).inputs;
}

/// "it generates, embeds": what the model can do instead.
std::string abilities(const ServedModel& model) {
  std::string out = model.pool.generates ? "generate" : "";
  for (size_t i = 0; i < inference::kPoolTaskCount; ++i) {
    if (const auto task = static_cast<PoolTask>(i); model.pool.tasks.has(task)) {
      out += (out.empty() ? "" : ", ") + std::string(to_string(task));
    }
  }
  return out;
}

ApiError cannot(const ServedModel& model, std::string_view what, std::string field = "model") {
  return api::validation_error(std::move(field), fmt::format("model '{}' cannot {}; it can: {}",
                                                             model.name, what, abilities(model)));
}

/// The model's own task for /pooling: the first of these that it has.
std::optional<PoolTask> default_task(const ServedModel& model) {
  for (const PoolTask task :
       {PoolTask::kEmbed, PoolTask::kClassify, PoolTask::kScore, PoolTask::kTokenEmbed}) {
    if (model.pool.tasks.has(task)) {
      return task;
    }
  }
  return std::nullopt;
}

/// Which task, and whether scores are made here from vectors.
struct Chosen {
  PoolTask task = PoolTask::kEmbed;
  bool compares = false;
};
ApiResult<Chosen> choose_task(const api::PoolCall& call, const ServedModel& model) {
  const inference::PoolTasks tasks = model.pool.tasks;
  switch (call.kind) {
    case PoolKind::kEmbeddings:
    case PoolKind::kCohereEmbed:
    case PoolKind::kTeiEmbed:
      return tasks.has(PoolTask::kEmbed) ? ApiResult<Chosen>(Chosen{PoolTask::kEmbed})
                                         : cannot(model, "make embeddings");
    case PoolKind::kTeiEmbedAll:
      return tasks.has(PoolTask::kTokenEmbed) ? ApiResult<Chosen>(Chosen{PoolTask::kTokenEmbed})
                                              : cannot(model, "make embeddings of tokens");
    case PoolKind::kTeiSimilarity:
      return tasks.has(PoolTask::kEmbed) ? ApiResult<Chosen>(Chosen{PoolTask::kEmbed, true})
                                         : cannot(model, "make embeddings");
    case PoolKind::kClassify:
    case PoolKind::kTeiPredict:
      return tasks.has(PoolTask::kClassify) ? ApiResult<Chosen>(Chosen{PoolTask::kClassify})
                                            : cannot(model, "classify");
    case PoolKind::kRerank:
    case PoolKind::kScore:
      if (tasks.has(PoolTask::kScore)) {
        return Chosen{PoolTask::kScore};
      }
      return tasks.has(PoolTask::kEmbed) ? ApiResult<Chosen>(Chosen{PoolTask::kEmbed, true})
                                         : cannot(model, "score texts");
    case PoolKind::kPooling:
      break;
  }
  if (call.task.empty()) {
    const auto task = default_task(model);
    return task ? ApiResult<Chosen>(Chosen{*task}) : cannot(model, "pool");
  }
  const auto named = inference::find_pool_task(call.task);
  if (!named) {
    return api::validation_error("task", fmt::format("task '{}' must be one of embed, token_embed, "
                                                     "classify, score",
                                                     call.task));
  }
  return tasks.has(*named) ? ApiResult<Chosen>(Chosen{*named})
                           : cannot(model, fmt::format("do task '{}'", call.task), "task");
}

/// Turns inputs into the sequences of parts.
class PartMaker {
 public:
  PartMaker(PoolPlan& plan, const PrepareContext& context)
      : plan_(plan), context_(context), tokenizer_(*plan.model->assets->tokenizer) {}

  /// How many tokens of a sequence are kept, and whether longer ones are an error.
  ApiStatus set_limits() {
    const uint32_t context = plan_.model->context_length;
    limit_ = context == 0 ? tokenizer::kNoLimit : context;
    const auto& wanted = plan_.call.truncate_prompt_tokens;
    truncates_ = wanted.has_value();
    if (wanted && *wanted > 0) {
      if (context != 0 && *wanted > context) {
        return api::validation_error(
            "truncate_prompt_tokens",
            fmt::format("truncate_prompt_tokens is {}, but the model takes at most {} tokens",
                        *wanted, context));
      }
      limit_ = static_cast<size_t>(*wanted);
    }
    if (plan_.call.kind == PoolKind::kCohereEmbed && plan_.call.max_tokens_per_document) {
      limit_ = std::min<size_t>(limit_, *plan_.call.max_tokens_per_document);
    }
    return {};
  }

  ApiStatus add(PoolInput& input, const std::string& field) {
    STATOR_TRY(std::vector<TokenId> ids, ids_of(input, field));
    const bool framed = std::holds_alternative<std::string>(input) && plan_.call.add_special_tokens;
    if (const size_t most = tokens_kept(framed); ids.size() > most && plan_.call.truncates_begin) {
      ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(most));
    }
    if (framed) {
      ids = tokenizer::frame_text(tokenizer_, ids, truncates_ ? limit_ : tokenizer::kNoLimit);
    } else if (truncates_ && ids.size() > limit_) {
      ids.resize(limit_);
    }
    STATOR_CHECK(check_length(ids.size(), field));
    put(std::move(ids), std::nullopt);
    if (wants_text()) {
      plan_.parts.back().pool.texts.push_back(text_of(input));
    }
    return {};
  }

  ApiStatus add_chat(const api::ChatInput& chat) {
    STATOR_TRY(std::string text, context_.encoder.render_chat(chat, *plan_.model, context_.wall_now,
                                                              context_.cancel));
    PoolInput input(std::move(text));
    plan_.call.add_special_tokens = false;  // the template has them
    return add(input, "messages");
  }

  ApiStatus add_pair(std::span<const TokenId> first, PoolInput& first_input, PoolInput& second,
                     const std::string& field) {
    STATOR_TRY(std::vector<TokenId> ids, ids_of(second, field));
    if (const auto most = plan_.call.max_tokens_per_document; most && ids.size() > *most) {
      ids.resize(*most);
    }
    tokenizer::FramedPair pair =
        tokenizer::frame_pair(tokenizer_, first, ids, truncates_ ? limit_ : tokenizer::kNoLimit);
    STATOR_CHECK(check_length(pair.ids.size(), field));
    put(std::move(pair.ids), pair.first_length);
    if (wants_text()) {
      plan_.parts.back().pool.texts.push_back(text_of(first_input));
      plan_.parts.back().pool.texts.push_back(text_of(second));
    }
    return {};
  }

  ApiResult<std::vector<TokenId>> ids_of(PoolInput& input, const std::string& field) const {
    STATOR_CHECK(CancelToken::check(context_.cancel));
    if (auto* given = std::get_if<std::vector<TokenId>>(&input)) {
      const auto outside =
          std::ranges::find_if(*given, [&](TokenId id) { return id >= plan_.model->vocab_size; });
      if (outside != given->end()) {
        return api::validation_error(
            field, fmt::format("token id {} is outside the vocabulary of {}", *outside,
                               plan_.model->vocab_size));
      }
      return *given;
    }
    std::vector<TokenId> ids;
    // With one more than fits it is seen that the text is too long.
    const Status encoded =
        tokenizer_.encode(std::get<std::string>(input),
                          {.stop = {.cancel = context_.cancel,
                                    .ids_max = truncates_ && !plan_.call.truncates_begin
                                                   ? std::min(limit_, kTokensMax)
                                                   : kTokensMax}},
                          ids);
    if (!encoded) {
      return ApiError(encoded.error().clone(), field);
    }
    return ids;
  }

 private:
  /// Of a text, beside the special tokens around it.
  size_t tokens_kept(bool framed) const {
    if (!truncates_) {
      return tokenizer::kNoLimit;
    }
    const size_t around =
        framed ? tokenizer::frame_text(tokenizer_, {}, tokenizer::kNoLimit).size() : 0;
    return limit_ - std::min(limit_, around);
  }
  bool wants_text() const { return plan_.model->pool.wants_text; }

  ApiStatus check_length(size_t tokens, const std::string& field) {
    if (tokens == 0) {
      return api::validation_error(field, fmt::format("{} has no tokens", field));
    }
    if (tokens > limit_) {
      return ApiError(
          Error(Code::kInvalidArgument,
                fmt::format("This model's maximum context length is {} tokens, but {} has {}. "
                            "Shorten it, or set truncate_prompt_tokens to -1.",
                            limit_, field, tokens)),
          field);
    }
    if (plan_.prompt_tokens + tokens > kTokensMax) {
      return ApiError(
          Error(Code::kInvalidArgument,
                fmt::format("more than {} tokens in one request: divide it", kTokensMax)),
          field);
    }
    return {};
  }

  void put(std::vector<TokenId> ids, std::optional<uint32_t> first_length) {
    if (plan_.parts.empty() || !fits(plan_.parts.back(), ids.size())) {
      plan_.parts.emplace_back().pool = {.task = plan_.task, .activate = plan_.call.activate};
    }
    PoolPart& part = plan_.parts.back();
    part.pool.lengths.push_back(static_cast<uint32_t>(ids.size()));
    if (first_length) {
      part.pool.first_lengths.push_back(*first_length);
    }
    if (part.tokens.empty()) {
      part.tokens = std::move(ids);
    } else {
      part.tokens.insert(part.tokens.end(), ids.begin(), ids.end());
    }
    plan_.prompt_tokens += part.pool.lengths.back();
    ++plan_.sequences;
  }

  bool fits(const PoolPart& part, size_t tokens) const {
    const size_t rows = plan_.task == PoolTask::kTokenEmbed ? part.tokens.size() + tokens
                                                            : part.pool.lengths.size() + 1;
    return part.pool.lengths.size() < kPartSequencesMax &&
           part.tokens.size() + tokens <= kPartTokensMax &&
           rows * std::max(1U, plan_.model->pool.width) <= inference::kPoolValuesMax;
  }

  std::string text_of(PoolInput& input) const {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&input)) {
      return tokenizer_.decode(*ids, tokenizer::SkipSpecial::kYes);
    }
    return std::get<std::string>(input);
  }

  PoolPlan& plan_;
  const PrepareContext& context_;
  const tokenizer::Tokenizer& tokenizer_;
  size_t limit_ = tokenizer::kNoLimit;
  bool truncates_ = false;
};

std::string element(std::string_view field, size_t index, size_t count) {
  return count == 1 ? std::string(field) : fmt::format("{}[{}]", field, index);
}

ApiStatus add_pairs(PoolPlan& plan, PartMaker& maker) {
  auto& queries = plan.call.queries;
  auto& documents = plan.call.inputs;
  const std::string_view query_field = api::field_names(plan.call.kind).queries;
  std::vector<TokenId> query;
  for (size_t i = 0; i < documents.size(); ++i) {
    const size_t at = queries.size() == 1 ? 0 : i;
    if (i == 0 || queries.size() > 1) {
      STATOR_TRY(query, maker.ids_of(queries[at], element(query_field, at, queries.size())));
    }
    STATOR_CHECK(maker.add_pair(query, queries[at], documents[i],
                                element(inputs_field(plan.call.kind), i, documents.size())));
  }
  return {};
}

ApiStatus add_sequences(PoolPlan& plan, const PrepareContext& context) {
  PartMaker maker(plan, context);
  STATOR_CHECK(maker.set_limits());
  if (plan.task == PoolTask::kScore && !plan.call.queries.empty()) {
    return add_pairs(plan, maker);
  }
  if (plan.call.chat) {
    return maker.add_chat(*plan.call.chat);
  }
  const auto add_all = [&](std::vector<PoolInput>& inputs, std::string_view field) -> ApiStatus {
    for (size_t i = 0; i < inputs.size(); ++i) {
      STATOR_CHECK(maker.add(inputs[i], element(field, i, inputs.size())));
    }
    return {};
  };
  plan.compared_queries = plan.call.queries.size();
  STATOR_CHECK(add_all(plan.call.queries, api::field_names(plan.call.kind).queries));
  return add_all(plan.call.inputs, inputs_field(plan.call.kind));
}

ApiStatus check_numbers(const PoolPlan& plan) {
  const uint32_t width = plan.model->pool.width;
  const bool vectors = plan.task == PoolTask::kEmbed || plan.task == PoolTask::kTokenEmbed;
  if (plan.call.dimensions && !vectors) {
    return api::validation_error("dimensions", "dimensions are for vectors, not for this task");
  }
  if (plan.call.dimensions && width != 0 && *plan.call.dimensions > width) {
    return api::validation_error("dimensions",
                                 fmt::format("dimensions is {}, but the model's vectors have {}",
                                             *plan.call.dimensions, width));
  }
  const size_t rows =
      plan.task == PoolTask::kTokenEmbed ? size_t{plan.prompt_tokens} : plan.sequences;
  if (vectors && rows * width > kPoolNumbersMax) {
    return api::validation_error(
        std::string(inputs_field(plan.call.kind)),
        fmt::format("the answer would have {} vectors of {} numbers: divide the request", rows,
                    width));
  }
  return {};
}

/// None where the header is absent or 0; an error where it is no number.
ApiResult<std::optional<Duration>> read_timeout(const net::HttpRequest& http) {
  for (const std::string_view name :
       {"x-stator-request-timeout-ms", "x-dynamo-request-timeout-ms", "x-request-timeout-ms"}) {
    const auto text = http.header(name);
    if (!text) {
      continue;
    }
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size()) {
      return api::validation_error(std::string(name),
                                   fmt::format("{} must be a number of milliseconds", name));
    }
    return value == 0 ? std::optional<Duration>()
                      : std::optional<Duration>(std::chrono::milliseconds(value));
  }
  return std::optional<Duration>();
}

}  // namespace

ApiStatus check_generates(const ServedModel& model) {
  return model.pool.generates ? ApiStatus() : ApiStatus(cannot(model, "generate text"));
}

ApiResult<PoolPlan> prepare_pool(api::PoolCall call, NamedModel named,
                                 const PrepareContext& context) {
  PoolPlan plan;
  plan.model = std::move(named.model);
  plan.adapter = std::move(named.adapter);
  STATOR_TRY(const Chosen chosen, choose_task(call, *plan.model));
  plan.task = chosen.task;
  plan.call = std::move(call);
  STATOR_TRY(plan.timeout, read_timeout(context.http));
  STATOR_CHECK(add_sequences(plan, context));
  STATOR_CHECK(check_numbers(plan));
  // vLLM runs small values first, our engines large ones.
  const int64_t priority = -static_cast<int64_t>(plan.call.priority);
  plan.priority = context.config.trusts_body_hints()
                      ? static_cast<int32_t>(std::min<int64_t>(priority, INT32_MAX))
                      : 0;
  plan.request_id = context.request_id;
  const auto given_id = context.http.header("x-request-id");
  plan.request_id_echo = given_id && given_id->size() <= kRequestIdBytesMax ? std::string(*given_id)
                                                                            : context.request_id;
  plan.created_s = unix_seconds(context.wall_now);
  plan.call.queries = {};
  const bool by_default = context.http.path() != "/v2/rerank" && !plan.call.in_tei_words;
  const bool returns = plan.call.kind == PoolKind::kRerank
                           ? plan.call.return_documents.value_or(by_default)
                           : plan.call.kind == PoolKind::kCohereEmbed;
  if (!returns) {
    plan.call.inputs = {};
  }
  plan.call.return_documents = returns;
  return plan;
}

}  // namespace stator::frontend
