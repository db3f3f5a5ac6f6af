// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stator/core/ids.h"
#include "stator/inference/media.h"
#include "stator/inference/sampling.h"
#include "stator/structured/structured_output.h"

namespace stator::api {

// What clients ask for, as plain structs: the output of request_parser.h. Everything here has been
// type-checked and validated; an optional without value means that the client did not send it (or
// sent null), so that model and operator defaults can apply later.

inline constexpr uint32_t kMaxChoices = 128;           ///< batch × n
inline constexpr uint32_t kMaxOutputTokens = 1048576;  ///< max_tokens
inline constexpr uint32_t kMaxStops = 32;              ///< stop strings; stop token ids separately
inline constexpr uint32_t kMaxTools = 1536;
inline constexpr uint32_t kMaxToolNameBytes = 128;
inline constexpr uint32_t kMaxSuffixChars = 10000;
inline constexpr uint32_t kMaxTopLogprobs = 20;
inline constexpr uint32_t kMaxCompletionLogprobs = 5;
inline constexpr uint32_t kMaxBestOf = 20;
inline constexpr uint32_t kMaxAllowedTokens = 65536;
inline constexpr uint32_t kMaxBadWords = 1024;
inline constexpr uint32_t kMaxBadWordBytes = 256;
inline constexpr uint32_t kMaxIgnoredFields = 64;  ///< names kept; further ones are only counted

/// What was wrong with the JSON text and mended. Anything but kNone deserves one warning in the
/// log.
enum class JsonRepair : uint8_t {
  kNone,
  kControlBytes,  ///< raw bytes below 0x20 inside strings were escaped
  kInvalidUtf8,   ///< broken UTF-8 became U+FFFD (and control bytes were escaped)
};

/// Sampling as the client spelled it. `resolve` fills the gaps.
struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> repetition_penalty;
  std::optional<int64_t> seed;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;  ///< at most kMaxAllowedTokens, no duplicates
  std::vector<std::string> bad_words;      ///< non-empty, at most kMaxBadWords
  std::optional<uint32_t> logprobs;        ///< alternatives per token, 0 = sampled only; none = off

  /// The client's values, and `defaults` (the model's generation_config.json) where it gave none.
  inference::SamplingParams resolve(const inference::SamplingParams& defaults) const;
};

struct AgentHints {
  std::optional<int32_t> priority;  ///< higher = more important
  std::optional<uint32_t> strict_priority;
  std::optional<uint32_t> expected_output_tokens;  ///< `osl`
  std::optional<double> latency_sensitivity;       ///< legacy: priority when `priority` is absent
  bool speculative_prefill = false;
};

/// Per-request router settings (`nvext.router_config_override`, and the targets of `nvext.router`):
/// whatever is set replaces the operator's value. The deprecated `overlap_score_weight` w arrives
/// as prefill_load_scale = w, and credit 0 if w is 0.
struct RouterOverrides {
  std::optional<double> overlap_score_credit;
  std::optional<double> prefill_load_scale;
  std::optional<double> router_temperature;  ///< 0 = lowest cost
  std::optional<double> shared_cache_multiplier;
  std::optional<bool> assume_kv_reuse;
  std::optional<bool> track_prefill_tokens;
  std::optional<double> ttft_target_ms;
  std::optional<double> itl_target_ms;
  bool operator==(const RouterOverrides&) const = default;
};

struct RoutingConstraints {
  std::vector<std::string> required_taints;
  std::vector<std::pair<std::string, float>> preferred_taints;
};

/// The request half of `nvext`: unknown keys inside are errors.
struct Nvext {
  bool greed_sampling = false;  ///< already applied to SamplingOptions
  bool use_raw_prompt = false;
  std::vector<std::string> annotations;
  std::optional<uint64_t> backend_instance_id;
  std::optional<uint64_t> prefill_worker_id;
  std::optional<uint64_t> decode_worker_id;
  std::optional<uint32_t> dp_rank;  ///< UINT32_MAX in the request means unset
  std::optional<uint32_t> prefill_dp_rank;
  std::vector<TokenId> token_data;  ///< pre-tokenized prompt; empty = none
  std::optional<uint32_t> max_thinking_tokens;
  std::vector<std::string> extra_fields;
  AgentHints agent_hints;
  RouterOverrides router_overrides;
  RoutingConstraints routing_constraints;
  std::optional<double> request_timestamp_ms;

  bool wants_extra_field(std::string_view name) const;
  /// Annotation `name`, or "name:<value>".
  bool wants_annotation(std::string_view name) const;
};

/// What chat and text completions have in common.
struct GenerateOptions {
  std::string model;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  uint32_t n = 1;  ///< 1 … kMaxChoices

  SamplingOptions sampling;
  std::vector<std::string> stop;        ///< non-empty strings, at most kMaxStops
  std::vector<TokenId> stop_token_ids;  ///< at most kMaxStops, no duplicates
  /// 1 … kMaxOutputTokens, of completions also 0; max_completion_tokens wins.
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> min_tokens;
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  /// Of a text prompt; default: true, of a conversation false (templates write BOS themselves).
  std::optional<bool> add_special_tokens;
  /// Only so many tokens at the prompt's end are kept; -1: as many as fit into the context.
  std::optional<int32_t> truncate_prompt_tokens;
  bool truncates_end = false;               ///< those at its beginning are kept
  std::optional<bool> skip_special_tokens;  ///< default true, unless a parser's markers are special
  bool return_tokens_as_token_ids = false;
  bool return_token_ids = false;  ///< those of the prompt and of the answer stand beside the text
  bool detokenize = true;         ///< false: the answer is token ids (nvext.completion_token_ids)
  /// Alternatives per token of the prompt whose log-probabilities are told, 0 … kMaxTopLogprobs.
  std::optional<uint32_t> prompt_logprobs;
  /// The shape the output must have. Only present when ParseLimits::guided_decoding is on.
  std::optional<structured::StructuredOutput> structured_output;

  std::string user;               ///< empty = not given
  std::string cache_salt;         ///< nvext.cache_salt, else the root's; empty = none
  bool include_reasoning = true;  ///< of chats: the client wants to see the model's reasoning
  Nvext nvext;

  /// Root keys nobody knows, in order, for the header x-stator-ignored-fields. At most
  /// kMaxIgnoredFields names, printable ASCII only.
  std::vector<std::string> ignored_fields;
  JsonRepair repair = JsonRepair::kNone;

  /// The part engines need. `default_max_tokens` applies when the client gave no limit.
  inference::StopConditions stop_conditions(uint32_t default_max_tokens,
                                            std::vector<TokenId> eos_token_ids) const;
};

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };

/// The conversation. The *_json texts are validated slices of the body, verbatim: key order and
/// number spelling are the client's. Empty text = absent (or null).
struct ChatInput {
  /// Non-empty array. Media are parts {"type":"image"} (audio, video) here; what they are is in
  /// `media`, in the same order.
  std::string messages_json;
  std::vector<inference::MediaPart> media;
  uint32_t message_count = 0;
  Role last_role = Role::kUser;
  std::string last_user_text;  ///< text parts of the last user message joined by \n; only for
                               ///< use_raw_prompt
  std::string tools_json;      ///< non-empty array of {type:"function",function:{name,…}}
  std::vector<std::string> tool_names;
  std::string documents_json;             ///< array
  std::string chat_template_kwargs_json;  ///< object; alias chat_template_args
  std::string thinking_json;     ///< `true`, `false` or {"type":"enabled"|"disabled"|"adaptive"}
  std::string reasoning_effort;  ///< empty = not given
  std::string default_thinking;  ///< "enabled", "disabled": where the request does not say
  bool add_generation_prompt = true;  ///< false by default when continue_final_message is on
  bool continue_final_message = false;
};

struct ToolChoice {
  /// kDefault: not given. kRequired and kNamed only when ParseLimits::guided_decoding is on.
  enum class Kind : uint8_t { kDefault, kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kDefault;
  std::string name;  ///< kNamed
};

struct ChatRequest {
  GenerateOptions options;
  ChatInput chat;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  std::string response_format_json;  ///< verbatim, for templates; empty = absent
};

/// One prompt of a completion: text (NUL bytes still inside) or token ids; never empty.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerateOptions options;
  std::vector<Prompt> prompts;  ///< 1 … kMaxChoices / n; empty only if nvext.token_data is given
  bool echo = false;            ///< prepend the prompt to the text, and to its logprobs
  std::string suffix;           ///< what stands behind the text; empty: nothing is known of it
  /// So many are generated per prompt, and the n likeliest are answered; 0 or n: all are.
  uint32_t best_of = 0;
};

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;  ///< set: text; not set: `chat`
  ChatInput chat;
  /// Default: true for a prompt, false for messages (templates write BOS themselves).
  bool add_special_tokens = true;
  bool return_token_strs = false;
  std::vector<std::string> ignored_fields;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;  ///< may be empty
  std::vector<std::string> ignored_fields;
};

}  // namespace stator::api
