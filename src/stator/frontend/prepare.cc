// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "stator/api/chunk_encoder.h"
#include "stator/api/request_parser.h"
#include "stator/core/hash.h"
#include "stator/frontend/gap.h"
#include "stator/frontend/media_prompt.h"
#include "stator/frontend/output_format.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/prompt_scores.h"
#include "stator/frontend/request_context.h"
#include "stator/frontend/request_record.h"
#include "stator/json/writer.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {
namespace {

using api::ApiError;
using api::ApiResult;
using api::ApiStatus;

// OpenAI's default for text completions; chats may use the whole context.
constexpr uint32_t kCompletionMaxTokensDefault = 16;
// Of a prompt that is to be truncated, before that.
constexpr size_t kTruncatedIdsMax = size_t{1} << 22;
// A longer x-request-id is not echoed.
constexpr size_t kRequestIdBytesMax = 256;

constexpr std::array<std::string_view, 3> kHeaderPrefixes = {"x-stator-", "x-dynamo-", "x-"};
// Of x-stator-allowed-worker-ids: every worker of a fleet is compared with it.
constexpr size_t kAllowedWorkersMax = 1024;

bool equal_ignoring_case(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char given, char wanted) {
    return given == wanted || (given >= 'A' && given <= 'Z' && given + ('a' - 'A') == wanted);
  });
}

/// The header of that name under the first of the prefixes that came.
std::optional<std::string_view> find_header(const net::HttpRequest& http, std::string_view suffix) {
  std::optional<std::string_view> found;
  size_t prefixes = kHeaderPrefixes.size();  // that are better than what was found
  for (size_t i = 0; i < http.header_count(); ++i) {
    const net::HttpHeader header = http.header_at(i);
    for (size_t p = 0; p < prefixes && header.name.size() > suffix.size(); ++p) {
      const std::string_view prefix = kHeaderPrefixes[p];
      if (header.name.size() == prefix.size() + suffix.size() &&
          equal_ignoring_case(header.name.substr(prefix.size()), suffix) &&
          equal_ignoring_case(header.name.substr(0, prefix.size()), prefix)) {
        found = header.value;
        prefixes = p;
      }
    }
  }
  return found;
}

/// Nothing without the header. A value that is no number is refused: `17abc` is not 17.
template <typename T>
ApiResult<std::optional<T>> parse_number(std::optional<std::string_view> text,
                                         std::string_view suffix) {
  if (!text) {
    return std::optional<T>();
  }
  T value{};
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    std::string name = fmt::format("x-stator-{}", suffix);
    const std::string message =
        fmt::format("{} must be a whole number from {} to {}", name, std::numeric_limits<T>::min(),
                    std::numeric_limits<T>::max());
    return api::validation_error(std::move(name), message);
  }
  return std::optional<T>(value);
}

/// Headers by which a client decides about more than its own request: who serves it, before whom,
/// and whose cache it shares. Looked at only if the operator trusts clients, or what stands before
/// them, with it.
class HintHeaders {
 public:
  explicit HintHeaders(const PrepareContext& context)
      : http_(context.http),
        trusted_(context.config.trusts_header_hints() && may_route(context.http)),
        any_(trusted_ && has_any(context.http)) {}

  std::optional<std::string_view> find(std::string_view suffix) const {
    return any_ ? find_header(http_, suffix) : std::nullopt;
  }
  template <typename T>
  ApiResult<std::optional<T>> number(std::string_view suffix) const {
    return parse_number<T>(find(suffix), suffix);
  }
  /// By credentials, else by header.
  std::string_view tenant() const {
    const std::string_view known = tenant_of(http_);
    if (!known.empty()) {
      return known;
    }
    return any_ ? http_.header("x-tenant-id").value_or("") : std::string_view();
  }
  /// Names of those that came and have no effect.
  void add_ignored(std::vector<std::string>& names) const {
    if (trusted_) {
      return;
    }
    for (const std::string_view suffix : kSuffixes) {
      for (const std::string_view prefix : kHeaderPrefixes) {
        std::string name = std::string(prefix) + std::string(suffix);
        if (http_.header(name)) {
          names.push_back(std::move(name));
        }
      }
    }
  }

 private:
  static constexpr std::array<std::string_view, 9> kSuffixes = {
      "worker-instance-id", "prefill-instance-id", "prefill-dp-rank",  "dp-rank",
      "data-parallel-rank", "allowed-worker-ids",  "request-priority", "request-strict-priority",
      "tenant-id"};

  static bool has_any(const net::HttpRequest& http) {
    bool any = false;
    for (size_t i = 0; i < http.header_count() && !any; ++i) {
      any = equal_ignoring_case(http.header_at(i).name.substr(0, 2), "x-");
    }
    return any;
  }

  const net::HttpRequest& http_;
  const bool trusted_;
  const bool any_;  // of them may be there
};

parsers::UnknownTools unknown_tools(const FrontendConfig& config) {
  return config.unknown_tools == "drop" ? parsers::UnknownTools::kDrop
                                        : parsers::UnknownTools::kKeep;
}

/// "1,2,3". A list that is none must not widen who may serve the request: it is refused.
ApiResult<std::vector<WorkerId>> parse_worker_list(std::string_view text) {
  std::vector<WorkerId> workers;
  while (!text.empty()) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    const size_t next = std::min(text.find_first_not_of(", "), text.size());
    if (error != std::errc() || (next == 0 && !text.empty())) {
      return api::validation_error("x-stator-allowed-worker-ids",
                                   "x-stator-allowed-worker-ids must be worker ids with commas "
                                   "between them");
    }
    if (workers.size() == kAllowedWorkersMax) {
      return api::validation_error(
          "x-stator-allowed-worker-ids",
          fmt::format("x-stator-allowed-worker-ids must have at most {} worker ids",
                      kAllowedWorkersMax));
    }
    workers.emplace_back(value);
    text.remove_prefix(next);
  }
  return workers;
}

router::CostOverride override_of(const api::RouterOverrides& given) {
  return {.overlap_credit = given.overlap_score_credit,
          .prefill_load_scale = given.prefill_load_scale,
          .temperature = given.router_temperature,
          .shared_multiplier = given.shared_cache_multiplier,
          .ttft_target_ms = given.ttft_target_ms,
          .assume_kv_reuse = given.assume_kv_reuse,
          .track_prefill_tokens = given.track_prefill_tokens};
}

/// Of the body's hints those that concern others' requests, too, as far as the caller may give any.
/// The rest stays: annotations, extra fields, budgets of its own.
void drop_untrusted(api::GenerateOptions& options, const net::HttpRequest& http) {
  if (may_route(http)) {
    return;
  }
  api::Nvext& nvext = options.nvext;
  const auto drop = [&options](auto& field, std::string_view name, bool given) {
    if (given) {
      options.ignored_fields.emplace_back(name);
      field = {};
    }
  };
  drop(nvext.backend_instance_id, "nvext.backend_instance_id",
       nvext.backend_instance_id.has_value());
  drop(nvext.prefill_worker_id, "nvext.prefill_worker_id", nvext.prefill_worker_id.has_value());
  drop(nvext.decode_worker_id, "nvext.decode_worker_id", nvext.decode_worker_id.has_value());
  drop(nvext.dp_rank, "nvext.dp_rank", nvext.dp_rank.has_value());
  drop(nvext.prefill_dp_rank, "nvext.prefill_dp_rank", nvext.prefill_dp_rank.has_value());
  drop(nvext.agent_hints, "nvext.agent_hints",
       nvext.agent_hints.priority || nvext.agent_hints.strict_priority ||
           nvext.agent_hints.expected_output_tokens);
  drop(nvext.routing_constraints, "nvext.routing_constraints",
       !nvext.routing_constraints.required_taints.empty() ||
           !nvext.routing_constraints.preferred_taints.empty());
  drop(nvext.router_overrides, "nvext.router", nvext.router_overrides != api::RouterOverrides{});
}

/// By header, else by the body. UINT32_MAX is Dynamo's "unset".
ApiResult<std::optional<uint32_t>> read_rank(const HintHeaders& hints, std::string_view suffix,
                                             std::optional<uint32_t> given) {
  STATOR_TRY(const auto rank, hints.number<uint32_t>(suffix));
  if (!rank) {
    return given;
  }
  return *rank == UINT32_MAX ? std::nullopt : rank;
}

ApiResult<RoutingWish> read_routing(const api::Nvext& nvext, const PrepareContext& context) {
  const HintHeaders hints(context);
  RoutingWish wish;
  STATOR_TRY(auto pinned, hints.number<uint64_t>("worker-instance-id"));
  if (!pinned) {
    pinned = nvext.backend_instance_id ? nvext.backend_instance_id : nvext.decode_worker_id;
  }
  if (pinned) {
    wish.pinned = WorkerId(*pinned);
  }
  STATOR_TRY(wish.pinned_rank, read_rank(hints, "dp-rank", nvext.dp_rank));
  if (!wish.pinned_rank) {
    STATOR_TRY(wish.pinned_rank, read_rank(hints, "data-parallel-rank", std::nullopt));
  }
  STATOR_TRY(auto prefill, hints.number<uint64_t>("prefill-instance-id"));
  if (!prefill) {
    prefill = nvext.prefill_worker_id;
  }
  if (prefill) {
    wish.prefill_pinned = WorkerId(*prefill);
  }
  STATOR_TRY(wish.prefill_rank, read_rank(hints, "prefill-dp-rank", nvext.prefill_dp_rank));
  STATOR_TRY(wish.allowed, parse_worker_list(hints.find("allowed-worker-ids").value_or("")));
  wish.required_taints = nvext.routing_constraints.required_taints;
  wish.preferred_taints = nvext.routing_constraints.preferred_taints;
  wish.override = override_of(nvext.router_overrides);
  wish.expected_output_tokens = nvext.agent_hints.expected_output_tokens;
  STATOR_TRY(const auto strict, hints.number<uint32_t>("request-strict-priority"));
  wish.strict_priority = strict.value_or(nvext.agent_hints.strict_priority.value_or(0));
  wish.tenant = hints.tenant();
  if (const RequestRecord* record = record_of(context.http);
      record != nullptr && record->caller.budget != nullptr) {
    wish.tenant_weight = record->caller.budget->weight();
  }
  if (!nvext.agent_hints.priority) {
    wish.latency_sensitivity = std::max(0.0, nvext.agent_hints.latency_sensitivity.value_or(0));
  }
  return wish;
}

/// Annotation `keep:SECONDS`: the prompt is wanted again within so many; 0: nobody says so.
uint32_t keep_seconds(const api::Nvext& nvext) {
  constexpr std::string_view kKeep = "keep:";
  uint32_t keep_s = 0;
  for (const std::string_view annotation : nvext.annotations) {
    if (annotation.starts_with(kKeep)) {
      std::from_chars(annotation.data() + kKeep.size(), annotation.data() + annotation.size(),
                      keep_s);
    }
  }
  return keep_s;
}

/// Our own engines do. They are those that take up a constrained answer in the middle, too.
bool holds_prompts(const ServedModel& model) {
  return model.structured_replay;
}

/// Who the request belongs to, and what goes with it to its worker.
void apply_context(GenerationPlan& plan, api::GenerateOptions& options,
                   const PrepareContext& context) {
  SessionIdentity identity = session_identity(context.http);
  if (identity.session.empty()) {
    identity.session = context.session;
  }
  plan.routing.session = session_of(context.http, identity.session);
  const uint32_t keep_s = keep_seconds(options.nvext);
  const bool keeps = holds_prompts(*plan.model);
  if (keep_s > 0 && !keeps) {
    options.ignored_fields.emplace_back(context.protocol != nullptr ? "cache_control"
                                                                    : "nvext.annotations");
  }
  plan.context = make_request_context(context.http, context.config.metadata_header, identity,
                                      keeps ? keep_s : 0);
}

ApiStatus apply_routing(GenerationPlan& plan, const api::GenerateOptions& options,
                        const PrepareContext& context) {
  const api::Nvext& nvext = options.nvext;
  STATOR_TRY(plan.routing, read_routing(nvext, context));
  if (!plan.adapter.empty()) {
    plan.routing.required_taints.push_back(adapter_taint(plan.adapter));
  }
  STATOR_TRY(const auto priority, HintHeaders(context).number<int32_t>("request-priority"));
  plan.priority = priority_of(context.http, priority ? priority : nvext.agent_hints.priority);
  constexpr std::string_view kTimeout = "request-timeout-ms";
  STATOR_TRY(const auto timeout_ms,
             parse_number<uint32_t>(find_header(context.http, kTimeout), kTimeout));
  if (timeout_ms.value_or(0) > 0) {
    plan.timeout = std::chrono::milliseconds(*timeout_ms);
  }
  plan.want_worker_id = nvext.wants_extra_field("worker_id");
  plan.want_stop_reason = nvext.wants_extra_field("stop_reason");
  plan.want_timing = nvext.wants_extra_field("timing");
  plan.want_token_ids = nvext.wants_extra_field("completion_token_ids");
  plan.want_engine_data = nvext.wants_extra_field("engine_data");
  plan.want_prompt_logprobs = nvext.wants_extra_field("prompt_logprobs");
  plan.client_unix_ms = nvext.request_timestamp_ms;
  plan.dry_run = nvext.wants_annotation("query_instance_id");
  plan.want_worker_id |= plan.dry_run;
  plan.received_unix_ms =
      std::chrono::duration<double, std::milli>(context.wall_now.time_since_epoch()).count();
  return {};
}

/// Who is to compute the prompt: where nobody computes prompts for others, that says nothing.
void note_idle_pins(const ServedModel& model, api::GenerateOptions& options,
                    const PrepareContext& context) {
  if (model.prefill != nullptr && model.prefill->has_workers()) {
    return;
  }
  const HintHeaders hints(context);
  if (options.nvext.prefill_worker_id) {
    options.ignored_fields.emplace_back("nvext.prefill_worker_id");
  }
  if (options.nvext.prefill_dp_rank) {
    options.ignored_fields.emplace_back("nvext.prefill_dp_rank");
  }
  for (const std::string_view suffix : {"prefill-instance-id", "prefill-dp-rank"}) {
    if (hints.find(suffix)) {
      options.ignored_fields.push_back(fmt::format("x-stator-{}", suffix));
    }
  }
}

GenerationPlan plan_for(NamedModel named) {
  GenerationPlan plan;
  plan.model = std::move(named.model);
  plan.adapter = std::move(named.adapter);
  return plan;
}

/// Tenants are told apart by header, conversations by field.
ApiResult<std::string> cache_salt_of(const api::GenerateOptions& options,
                                     const PrepareContext& context) {
  if (!tenant_of(context.http).empty()) {
    return record_of(context.http)->salt(options.cache_salt);
  }
  const std::string_view tenant = HintHeaders(context).tenant();
  if (tenant.size() > api::kMaxCacheSaltBytes) {
    return api::validation_error(
        "x-tenant-id",
        fmt::format("x-tenant-id must have at most {} bytes", api::kMaxCacheSaltBytes));
  }
  return tenant.empty() ? options.cache_salt : std::string(tenant);
}

/// What nvext.annotations asked for and is known by now, for streams only. Unknown names are none
/// of our business; the worker's frame follows when there is one.
void annotate(GenerationPlan& plan, const api::Nvext& nvext) {
  if (!plan.answer.stream) {
    plan.answer.annotations.clear();
    return;
  }
  std::string json;
  if (nvext.wants_annotation("request_id")) {
    json::append_string(json, plan.answer.request_id);
    api::append_sse_annotation(plan.answer.annotations, "request_id", json);
  }
  if (nvext.wants_annotation("token_ids")) {
    for (const auto& prompt : plan.prompts) {
      api::append_sse_annotation(plan.answer.annotations, "token_ids",
                                 fmt::format("[{}]", fmt::join(prompt, ",")));
    }
  }
  plan.announce_worker = nvext.wants_annotation("worker_instance_id");
}

/// The text of the next prompt, if nvext.annotations asked for it.
void annotate_prompt(GenerationPlan& plan, const api::Nvext& nvext, std::string_view text) {
  if (nvext.wants_annotation("formatted_prompt")) {
    std::string json;
    json::append_string(json, text);
    api::append_sse_annotation(plan.answer.annotations, "formatted_prompt", json);
  }
}

void add_prompt(GenerationPlan& plan, tokenizer::PromptIds prompt) {
  plan.prompts.push_back(std::move(prompt.ids));
  plan.sequences.push_back(std::move(prompt.sequences));
}

/// `more`: it may have more than so many.
ApiError too_long(const GenerationPlan& plan, size_t tokens, std::string_view more = {}) {
  return {Error(Code::kInvalidArgument,
                fmt::format("This model's maximum context length is {} tokens, but the prompt has "
                            "{}{}. Shorten the prompt.",
                            plan.model->context_length, more, tokens)),
          plan.answer.endpoint == Endpoint::kChat ? "messages" : "prompt"};
}

/// How many of the prompt's tokens truncate_prompt_tokens keeps; nothing: all.
std::optional<size_t> tokens_kept(const api::GenerateOptions& options, const ServedModel& model) {
  if (!options.truncate_prompt_tokens) {
    return std::nullopt;
  }
  if (*options.truncate_prompt_tokens > 0) {
    return static_cast<size_t>(*options.truncate_prompt_tokens);
  }
  const size_t answer = std::max<size_t>(options.max_tokens.value_or(1), 1);
  return std::max<size_t>(model.context_length - std::min<size_t>(answer, model.context_length), 1);
}

void truncate(std::vector<TokenId>& ids, const api::GenerateOptions& options,
              const ServedModel& model) {
  const auto kept = tokens_kept(options, model);
  if (!kept || ids.size() <= *kept) {
    return;
  }
  if (options.truncates_end) {
    ids.resize(*kept);
  } else {
    ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(*kept));
  }
}

ApiStatus add_prompt(GenerationPlan& plan, std::vector<TokenId> ids,
                     const api::GenerateOptions& options, const PrepareContext& context) {
  truncate(ids, options, *plan.model);
  if (ids.size() >= plan.model->context_length) {
    return too_long(plan, ids.size());
  }
  add_prompt(plan, context.encoder.hash_ids(std::move(ids), *plan.model, plan.hash_seed()));
  return {};
}

/// A text that becomes a prompt.
struct PromptText {
  std::string text;
  bool add_special = false;  ///< unless the client says
};

/// Encodes text as the plan's next prompt: no more of it than is needed to see that it is too long.
ApiStatus add_prompt(GenerationPlan& plan, PromptText prompt_text,
                     const api::GenerateOptions& options, const PrepareContext& context) {
  const bool add_special = options.add_special_tokens.value_or(prompt_text.add_special);
  const auto kept = tokens_kept(options, *plan.model);
  STATOR_TRY(
      auto prompt,
      context.encoder.encode_text(
          std::move(prompt_text.text), *plan.model,
          {.add_special = add_special ? tokenizer::AddSpecial::kYes : tokenizer::AddSpecial::kNo,
           .hash_seed = plan.hash_seed(),
           .stop = {.cancel = context.cancel,
                    .ids_max = kept ? kTruncatedIdsMax : plan.model->context_length}}));
  if (kept && !prompt.is_cut_short && prompt.ids.size() > *kept) {
    return add_prompt(plan, std::move(prompt.ids), options, context);
  }
  if (prompt.is_cut_short) {
    return too_long(plan, plan.model->context_length, "more than ");
  }
  if (prompt.ids.size() >= plan.model->context_length) {
    return too_long(plan, prompt.ids.size());
  }
  add_prompt(plan, std::move(prompt));
  return {};
}

/// A prompt with images and the like.
ApiStatus add_media_prompt(GenerationPlan& plan, const api::ChatRequest& request,
                           const PrepareContext& context) {
  const api::GenerateOptions& options = request.options;
  if (options.truncate_prompt_tokens || options.nvext.use_raw_prompt) {
    return api::validation_error(
        options.truncate_prompt_tokens ? "truncate_prompt_tokens" : "nvext.use_raw_prompt",
        "prompts with images, audio or video are rendered whole");
  }
  const MediaPromptContext media{
      .encoder = context.encoder,
      .model = *plan.model,
      .options = {.add_special = options.add_special_tokens.value_or(false)
                                     ? tokenizer::AddSpecial::kYes
                                     : tokenizer::AddSpecial::kNo,
                  .hash_seed = plan.hash_seed(),
                  .stop = {.cancel = context.cancel, .ids_max = plan.model->context_length}},
      .now = context.wall_now,
      .cancel = context.cancel};
  STATOR_TRY(MediaPrompt prompt, make_media_prompt(request.chat, context.media, media));
  annotate_prompt(plan, options.nvext, prompt.text);
  if (prompt.ids.is_cut_short || prompt.ids.ids.size() >= plan.model->context_length) {
    return too_long(plan, prompt.ids.ids.size(), prompt.ids.is_cut_short ? "more than " : "");
  }
  plan.media = std::move(prompt.media);
  plan.media_json = describe_media(*plan.media);
  add_prompt(plan, std::move(prompt.ids));
  return {};
}

/// Limits that depend on the prompt's length; fills plan.stop.
ApiStatus apply_lengths(GenerationPlan& plan, const api::GenerateOptions& options,
                        std::string_view prompt_param) {
  const ServedModel& model = *plan.model;
  for (const auto& prompt : plan.prompts) {
    if (prompt.empty()) {
      return api::validation_error(std::string(prompt_param), "the prompt is empty");
    }
    const auto room = static_cast<uint32_t>(model.context_length - prompt.size());
    const uint32_t by_default = plan.answer.endpoint == Endpoint::kChat
                                    ? room
                                    : std::min(room, kCompletionMaxTokensDefault);
    inference::StopConditions stop = options.stop_conditions(by_default, model.eos_token_ids);
    plan.writes_nothing = stop.max_tokens == 0;
    stop.max_tokens = std::clamp(stop.max_tokens, 1U, room);
    stop.min_tokens = std::min(stop.min_tokens, stop.max_tokens);
    plan.stop.push_back(std::move(stop));
  }
  return {};
}

std::string make_answer_id(const AnswerSpec& answer) {
  if (answer.protocol != nullptr) {
    return protocols::answer_id(*answer.protocol, answer.request_id);
  }
  return (answer.endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-") + answer.request_id;
}

/// What only some engines can do.
ApiStatus check_token_filters(const api::SamplingOptions& sampling, const ServedModel& model) {
  const std::string_view name = !sampling.allowed_token_ids.empty() ? "allowed_token_ids"
                                : !sampling.bad_words.empty()       ? "bad_words"
                                                                    : std::string_view();
  if (name.empty() || model.token_filters) {
    return {};
  }
  return api::unsupported_error(
      std::string(name), fmt::format("{} is not supported: the engine of model '{}' cannot honour "
                                     "it. Leave it out, or use logit_bias",
                                     name, model.name));
}

ApiStatus apply_options(GenerationPlan& plan, api::GenerateOptions& options,
                        const PrepareContext& context) {
  STATOR_CHECK(api::check_token_ids(options, plan.model->vocab_size));
  STATOR_CHECK(check_token_filters(options.sampling, *plan.model));
  plan.choices_per_prompt = options.n;
  plan.sampling = options.sampling.resolve(plan.model->assets->sampling_defaults);
  if (!options.stop.empty() && !options.ignore_eos) {
    STATOR_TRY(plan.stop_strings, parsers::StopMatcher::create(options.stop));
  }
  plan.decode.include_stop =
      options.include_stop_str_in_output ? parsers::IncludeStop::kYes : parsers::IncludeStop::kNo;
  plan.decode.skip_special = options.skip_special_tokens.value_or(true)
                                 ? tokenizer::SkipSpecial::kYes
                                 : tokenizer::SkipSpecial::kNo;
  plan.decode.min_tokens = options.min_tokens.value_or(0);
  plan.decode.has_text = options.detokenize;
  drop_untrusted(options, context.http);
  STATOR_CHECK(apply_routing(plan, options, context));
  apply_context(plan, options, context);
  HintHeaders(context).add_ignored(options.ignored_fields);
  note_idle_pins(*plan.model, options, context);

  AnswerSpec& answer = plan.answer;
  answer.stream = options.stream;
  answer.model = plan.adapter.empty() ? plan.model->name : plan.adapter;
  answer.request_id = context.request_id;
  auto given_id = context.http.header("x-request-id");
  if (!given_id) {
    given_id = context.http.header("x-dynamo-request-id");
  }
  answer.request_id_echo = given_id && given_id->size() <= kRequestIdBytesMax
                               ? std::string(*given_id)
                               : context.request_id;
  answer.protocol = context.protocol;
  answer.echo = context.echo;
  answer.id = make_answer_id(answer);
  answer.created_s = unix_seconds(context.wall_now);
  answer.ignored_fields = fmt::format("{}", fmt::join(options.ignored_fields, ","));
  answer.options.include_usage = options.include_usage || context.config.force_include_usage;
  answer.options.continuous_usage_stats = options.continuous_usage_stats;
  answer.options.reasoning_field = context.config.reasoning_field;
  answer.options.tokens_as_token_ids = options.return_tokens_as_token_ids;
  answer.options.token_ids = options.return_token_ids;
  answer.logprobs = plan.sampling.logprobs.has_value();
  answer.choices = static_cast<uint32_t>(plan.prompts.size()) * options.n;
  answer.choices_per_prompt = options.n;
  answer.error_style =
      protocols::style_for(context.protocol, {.overload_status = context.config.overload_status});
  answer.retry_after = context.config.retry_after;
  annotate(plan, options.nvext);
  return {};
}

/// The end of the prompt as text, as far as the reader of the answer needs it.
std::string prompt_tail(const GenerationPlan& plan, bool continues_message) {
  const std::span prompt(plan.prompts.front());
  const size_t wanted = continues_message ? kContinuedTailTokens : kPromptTailTokens;
  return plan.model->assets->tokenizer->decode(prompt.last(std::min(prompt.size(), wanted)),
                                               tokenizer::SkipSpecial::kNo);
}

/// nvext.max_thinking_tokens, where reasoning has a marker that ends it and answers can be taken up
/// again. Else the client sees that it had no effect.
ApiStatus apply_thinking_budget(GenerationPlan& plan, const api::GenerateOptions& options) {
  const auto tokens = options.nvext.max_thinking_tokens;
  if (!tokens) {
    return {};
  }
  const auto& reasoning = plan.model->parsers.reasoning;
  const bool reasons = plan.format != nullptr && plan.format->reasons;
  plan.thinking.emplace(ThinkingBudget{.tokens = *tokens, .close = {}});
  if (!reasons || reasoning->close.empty() || plan.replay() != continuity::Replay::kAlways) {
    plan.ignore_thinking_budget();
    return {};
  }
  const std::string text = reasoning->close.front().text + "\n\n";
  STATOR_CHECK(plan.model->assets->tokenizer->encode(text, {}, plan.thinking->close));
  return {};
}

/// How the answer is read: reasoning and tool calls.
ApiStatus apply_format(GenerationPlan& plan, const api::ChatRequest& request,
                       const PrepareContext& context) {
  const ModelParsers& parsers = plan.model->parsers;
  const bool wants_tail = parsers.reasoning != nullptr;
  const std::string tail =
      wants_tail ? prompt_tail(plan, request.chat.continue_final_message) : std::string();
  STATOR_TRY(plan.format,
             make_output_format(parsers, {.request = request,
                                          .prompt_tail = tail,
                                          .answers_json = !plan.structured_outputs.empty(),
                                          .unknown_tools = unknown_tools(context.config),
                                          .id_seed = xxh3_64(context.request_id)}));
  STATOR_CHECK(apply_thinking_budget(plan, request.options));
  plan.hides_reasoning = !request.options.include_reasoning;
  plan.require_reasoning =
      !plan.structured_outputs.empty() && plan.format != nullptr && plan.format->reasons;
  return {};
}

/// The prompt of a conversation: as ids, as it stands, or rendered.
ApiStatus add_chat_prompt(GenerationPlan& plan, api::ChatRequest& request,
                          const PrepareContext& context) {
  api::Nvext& nvext = request.options.nvext;
  if (!nvext.token_data.empty()) {
    if (!request.chat.media.empty()) {
      return api::validation_error("nvext.token_data",
                                   "nvext.token_data goes with text only: leave out the media");
    }
    return add_prompt(plan, std::move(nvext.token_data), request.options, context);
  }
  if (nvext.use_raw_prompt && request.chat.media.empty()) {
    annotate_prompt(plan, nvext, request.chat.last_user_text);
    return add_prompt(plan, {std::move(request.chat.last_user_text), true}, request.options,
                      context);
  }
  if (request.tool_choice.kind == api::ToolChoice::Kind::kNone &&
      context.config.exclude_tools_when_none) {
    request.chat.tools_json.clear();
  }
  if (!request.chat.media.empty()) {
    return add_media_prompt(plan, request, context);
  }
  STATOR_TRY(auto text, context.encoder.render_chat(request.chat, *plan.model, context.wall_now,
                                                    context.cancel));
  annotate_prompt(plan, nvext, text);
  return add_prompt(plan, {std::move(text), false}, request.options, context);
}

}  // namespace

ApiResult<GenerationPlan> prepare_chat(api::ChatRequest request, NamedModel named,
                                       const PrepareContext& context) {
  GenerationPlan plan = plan_for(std::move(named));
  plan.answer.endpoint = Endpoint::kChat;
  request.chat.default_thinking = plan.model->default_thinking_mode;
  STATOR_TRY(plan.cache_salt, cache_salt_of(request.options, context));
  STATOR_TRY(plan.structured_outputs,
             make_structured_outputs(request.options.structured_output, &request,
                                     plan.model->structured_output));
  STATOR_CHECK(add_chat_prompt(plan, request, context));
  STATOR_CHECK(apply_options(plan, request.options, context));
  STATOR_CHECK(apply_lengths(plan, request.options, "messages"));
  STATOR_CHECK(check_prompt_logprobs(request.options, context.protocol));
  STATOR_CHECK(apply_prompt_logprobs(plan, request.options.prompt_logprobs));
  if (request.options.detokenize && (context.protocol == nullptr || !context.protocol->plain)) {
    STATOR_CHECK(apply_format(plan, request, context));
  }
  return plan;
}

ApiResult<GenerationPlan> prepare_completion(api::CompletionRequest request, NamedModel named,
                                             const PrepareContext& context) {
  STATOR_CHECK(api::check_token_ids(request, named.model->vocab_size));
  GenerationPlan plan = plan_for(std::move(named));
  plan.answer.endpoint = Endpoint::kCompletions;
  STATOR_TRY(plan.cache_salt, cache_salt_of(request.options, context));
  STATOR_TRY(plan.structured_outputs,
             make_structured_outputs(request.options.structured_output, nullptr,
                                     plan.model->structured_output));
  const tokenizer::Tokenizer& tokenizer = *plan.model->assets->tokenizer;
  if (!request.options.nvext.token_data.empty()) {
    STATOR_CHECK(
        add_prompt(plan, std::move(request.options.nvext.token_data), request.options, context));
  } else {
    if (!request.suffix.empty()) {
      STATOR_CHECK(add_suffix(request, *plan.model));
    }
    for (api::Prompt& prompt : request.prompts) {
      if (auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
        STATOR_CHECK(add_prompt(plan, std::move(*tokens), request.options, context));
        continue;
      }
      annotate_prompt(plan, request.options.nvext, std::get<std::string>(prompt));
      STATOR_CHECK(add_prompt(plan, {std::move(std::get<std::string>(prompt)), true},
                              request.options, context));
    }
  }
  if (request.echo) {
    for (const auto& prompt : plan.prompts) {
      plan.echo.push_back(tokenizer.decode(prompt, tokenizer::SkipSpecial::kYes));
    }
  }
  STATOR_CHECK(apply_options(plan, request.options, context));
  STATOR_CHECK(apply_lengths(plan, request.options, "prompt"));
  STATOR_CHECK(apply_prompt_logprobs(plan, request.options.prompt_logprobs));
  apply_best_of(plan, request.best_of);
  return plan;
}

}  // namespace stator::frontend
