// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "stator/api/detail/field_names.h"
#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"
#include "stator/structured/read_request.h"

namespace stator::api {
namespace {

using Reader = GenerateReader;

// ---- accepted for compatibility, without effect

void read_service_tier(Reader& r, const Path& path) {
  const auto tier = r.in.string(path);
  if (tier && *tier != "auto" && *tier != "default") {
    note_without_effect(r, path);
  }
}
void read_ignored_object(Reader& r, const Path& path) {
  if (r.in.raw_object(path)) {
    note_without_effect(r, path);
  }
}
void read_store(Reader& r, const Path& path) {
  if (r.in.boolean(path) == true) {
    note_without_effect(r, path);
  }
}
void read_length_penalty(Reader& r, const Path& path) {
  if (r.in.number(path, {-2, 2})) {  // means something to beam search only
    note_without_effect(r, path);
  }
}

// ---- known, but nobody implements them: refused rather than silently dropped
// -----------------------

void read_unsupported_ids(Reader& r, const Path& path) {
  const auto ids = r.in.token_ids(path);
  if (ids && !ids->empty()) {
    r.in.unsupported(path, "is not supported");
  }
}

void read_bad_words_token_ids(Reader& r, const Path& path) {
  bool any = false;
  r.in.array(path, [&](size_t, const Path& element) {
    any = true;
    if (!r.in.token_ids(element)) {
      r.in.violation(element, "must be an array of token ids");
    }
  });
  if (any) {
    r.in.unsupported(path, "is not supported");
  }
}

void read_unsupported_object(Reader& r, const Path& path) {
  if (r.in.raw_object(path)) {
    r.in.unsupported(path, "is not supported");
  }
}

/// Of other servers' requests, where the answer without it would be another one.
void read_unsupported_text(Reader& r, const Path& path) {
  const auto value = r.in.any(path);
  if (value && *value != "[]" && *value != "{}" && *value != R"("")") {
    r.in.unsupported(path, "is not supported");
  }
}

void read_lora_path(Reader& r, const Path& path) {
  if (const auto name = r.in.string(path); name && !name->empty()) {
    r.in.unsupported(path, "is not supported: name the adapter as the model");
  }
}

void read_use_beam_search(Reader& r, const Path& path) {
  if (r.in.boolean(path) == true) {
    r.in.unsupported(path, "is not supported");
  }
}

// ---- what and how much

void read_model(Reader& r, const Path& path) {
  r.options.model = r.in.string(path, Blank::kRefused).value_or("");
}
void read_stream(Reader& r, const Path& path) {
  r.options.stream = r.in.boolean(path).value_or(false);
}
void read_stream_options(Reader& r, const Path& path) {
  r.options.include_usage = false;
  r.options.continuous_usage_stats = false;
  r.stream_options_seen = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "include_usage") {
      r.options.include_usage = r.in.boolean(member).value_or(false);
    } else if (key == "continuous_usage_stats") {
      r.options.continuous_usage_stats = r.in.boolean(member).value_or(false);
    } else {
      r.in.skip();
    }
  });
}
void read_n(Reader& r, const Path& path) {
  r.options.n = r.in.integer<uint32_t>(path, 1, kMaxChoices).value_or(1);
}
void read_max_tokens(Reader& r, const Path& path) {
  r.max_tokens = r.in.integer<uint32_t>(path, r.max_tokens_min, kMaxOutputTokens);
}
void read_max_completion_tokens(Reader& r, const Path& path) {
  r.max_completion_tokens = r.in.integer<uint32_t>(path, 1, kMaxOutputTokens);
}
void read_min_tokens(Reader& r, const Path& path) {
  r.options.min_tokens = r.in.integer<uint32_t>(path, 0, kMaxOutputTokens);
}
void read_ignore_eos(Reader& r, const Path& path) {
  r.options.ignore_eos = r.in.boolean(path).value_or(false);
}

// ---- the prompt

void read_add_special_tokens(Reader& r, const Path& path) {
  r.options.add_special_tokens = r.in.boolean(path);
}
void read_truncate_prompt_tokens(Reader& r, const Path& path) {
  r.options.truncate_prompt_tokens = r.in.integer<int32_t>(path, -1, INT32_MAX);
  if (r.options.truncate_prompt_tokens == 0) {
    r.in.violation(path, "must be -1 or at least 1");
  }
}
void read_truncation_side(Reader& r, const Path& path) {
  const std::string_view side = r.in.string(path).value_or("left");
  r.options.truncates_end = side == "right";
  if (side != "left" && side != "right") {
    r.in.violation(path, "must be left or right");
  }
}
void read_data_parallel_rank(Reader& r, const Path& path) {
  r.root_dp_rank = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
}
void read_thinking_token_budget(Reader& r, const Path& path) {
  r.root_thinking_budget = r.in.integer<uint32_t>(path, 0, UINT32_MAX);
}
void read_priority(Reader& r, const Path& path) {
  r.root_priority = r.in.integer<int32_t>(path, -INT32_MAX, INT32_MAX);
}

// ---- sampling

void read_temperature(Reader& r, const Path& path) {
  r.options.sampling.temperature = r.in.number_f32(path, {0, 2});
}
void read_top_p(Reader& r, const Path& path) {
  r.options.sampling.top_p = r.in.number_f32(path, {0, 1, true});
}
void read_top_k(Reader& r, const Path& path) {
  r.options.sampling.top_k = r.in.integer<int32_t>(path, -1, INT32_MAX);
}
void read_min_p(Reader& r, const Path& path) {
  r.options.sampling.min_p = r.in.number_f32(path, {0, 1});
}
void read_presence_penalty(Reader& r, const Path& path) {
  r.options.sampling.presence_penalty = r.in.number_f32(path, {-2, 2});
}
void read_frequency_penalty(Reader& r, const Path& path) {
  r.options.sampling.frequency_penalty = r.in.number_f32(path, {-2, 2});
}
void read_repetition_penalty(Reader& r, const Path& path) {
  r.options.sampling.repetition_penalty = r.in.number_f32(path, {0, 2, true});
}
void read_seed(Reader& r, const Path& path) {
  r.options.sampling.seed = r.in.integer<int64_t>(path, INT64_MIN, INT64_MAX);
}

void read_logit_bias(Reader& r, const Path& path) {
  std::map<TokenId, float> biases;  // of duplicates the last one counts
  r.in.object(path, [&](std::string_view key, const Path& member) {
    TokenId token = 0;
    const auto [end, outcome] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (outcome != std::errc() || end != key.data() + key.size()) {
      r.in.violation(member, "must be named by a token id");
    }
    if (const auto bias = r.in.number_f32(member, {-100, 100})) {
      biases.insert_or_assign(token, *bias);
    }
  });
  if (biases.size() > kMaxLogitBiases) {
    r.in.violation(path, fmt::format("must have at most {} entries", kMaxLogitBiases));
  }
  r.options.sampling.logit_bias.assign(biases.begin(), biases.end());
}

void read_allowed_token_ids(Reader& r, const Path& path) {
  auto ids = r.in.token_ids(path).value_or(std::vector<TokenId>());
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  if (ids.size() > kMaxAllowedTokens) {
    r.in.violation(path, fmt::format("must have at most {} ids", kMaxAllowedTokens));
  }
  r.options.sampling.allowed_token_ids = std::move(ids);
}

void read_bad_words(Reader& r, const Path& path) {
  auto words = r.in.strings(path).value_or(std::vector<std::string>());
  if (words.size() > kMaxBadWords) {
    r.in.violation(path, fmt::format("must have at most {} entries", kMaxBadWords));
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty() || words[i].size() > kMaxBadWordBytes) {
      r.in.violation(Path(path, i), fmt::format("must have 1 to {} bytes", kMaxBadWordBytes));
      return;
    }
  }
  r.options.sampling.bad_words = std::move(words);
}

// ---- stopping

void read_stop_entry(Reader& r, const Path& path) {
  if (r.in.peek() == json::Kind::kNumber) {
    if (const auto id = r.in.integer<TokenId>(path, 0, UINT32_MAX)) {
      r.stop_ids.push_back(*id);
    }
    return;
  }
  if (r.in.peek() != json::Kind::kString) {
    r.in.type_error(path, "a string or a token id");
    return;
  }
  const auto text = r.in.string(path);
  if (!text) {
    return;
  }
  if (text->empty()) {
    r.in.violation(path, "must not be empty");
  } else {
    r.options.stop.emplace_back(*text);
  }
}

void read_stop(Reader& r, const Path& path) {
  r.options.stop.clear();
  r.stop_ids.clear();
  switch (r.in.peek()) {
    case json::Kind::kString:
      read_stop_entry(r, path);
      return;
    case json::Kind::kArray:
    case json::Kind::kNull:
      break;
    default:
      r.in.type_error(path, "a string or an array");
      return;
  }
  size_t entries = 0;
  r.in.array(path, [&](size_t, const Path& element) {
    ++entries;
    read_stop_entry(r, element);
  });
  if (entries > kMaxStops) {  // clients send [] for "none"
    r.in.violation(path, fmt::format("must have at most {} entries", kMaxStops));
  }
}

void read_stop_token_ids(Reader& r, const Path& path) {
  r.options.stop_token_ids = r.in.token_ids(path).value_or(std::vector<TokenId>());
}

// ---- output

void read_include_stop_str(Reader& r, const Path& path) {
  r.options.include_stop_str_in_output = r.in.boolean(path).value_or(false);
}
void read_skip_special_tokens(Reader& r, const Path& path) {
  r.options.skip_special_tokens = r.in.boolean(path);
}
void read_detokenize(Reader& r, const Path& path) {
  r.options.detokenize = r.in.boolean(path).value_or(true);
}
void read_prompt_logprobs(Reader& r, const Path& path) {
  r.options.prompt_logprobs = r.in.integer<uint32_t>(path, 0, kMaxTopLogprobs);
}
void read_return_token_ids(Reader& r, const Path& path) {
  r.options.return_token_ids = r.in.boolean(path).value_or(false);
}
void read_return_tokens_as_ids(Reader& r, const Path& path) {
  r.options.return_tokens_as_token_ids = r.in.boolean(path).value_or(false);
}

// ---- who

void read_user(Reader& r, const Path& path) {
  r.options.user = r.in.string(path, Blank::kRefused).value_or("");
  if (!r.options.user.empty()) {
    note_without_effect(r, path);
  }
}
void read_cache_salt(Reader& r, const Path& path) {
  r.root_cache_salt = read_salt(r.in, path);
}
void read_nvext_field(Reader& r, const Path& path) {
  r.options.nvext = {};
  r.nvext_cache_salt.clear();
  if (r.limits.nvext_enabled) {
    read_nvext(r, path);
  } else {
    r.nvext_dropped = true;
    r.in.skip();
  }
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"add_special_tokens", read_add_special_tokens},
    {"allowed_token_ids", read_allowed_token_ids},
    {"bad_words", read_bad_words},
    {"bad_words_token_ids", read_bad_words_token_ids},
    {"cache_salt", read_cache_salt},
    {"custom_logit_processor", read_unsupported_text},
    {"data_parallel_rank", read_data_parallel_rank},
    {"detokenize", read_detokenize},
    {"frequency_penalty", read_frequency_penalty},
    {"ignore_eos", read_ignore_eos},
    {"include_stop_str_in_output", read_include_stop_str},
    {"kv_transfer_params", read_unsupported_object},
    {"length_penalty", read_length_penalty},
    {"logit_bias", read_logit_bias},
    {"logits_processors", read_unsupported_text},
    {"logprob_token_ids", read_unsupported_ids},
    {"lora_path", read_lora_path},
    {"max_completion_tokens", read_max_completion_tokens},
    {"max_tokens", read_max_tokens},
    {"media_io_kwargs", read_ignored_object},
    {"metadata", read_ignored_object},
    {"min_p", read_min_p},
    {"min_tokens", read_min_tokens},
    {"mm_processor_kwargs", read_ignored_object},
    {"model", read_model},
    {"n", read_n},
    {"nvext", read_nvext_field},
    {"presence_penalty", read_presence_penalty},
    {"priority", read_priority},
    {"prompt_logprobs", read_prompt_logprobs},
    {"repetition_penalty", read_repetition_penalty},
    {"return_token_ids", read_return_token_ids},
    {"return_tokens_as_token_ids", read_return_tokens_as_ids},
    {"seed", read_seed},
    {"service_tier", read_service_tier},
    {"skip_special_tokens", read_skip_special_tokens},
    {"stop", read_stop},
    {"stop_token_ids", read_stop_token_ids},
    {"store", read_store},
    {"stream", read_stream},
    {"stream_options", read_stream_options},
    {"temperature", read_temperature},
    {"thinking_token_budget", read_thinking_token_budget},
    {"top_k", read_top_k},
    {"top_p", read_top_p},
    {"truncate_prompt_tokens", read_truncate_prompt_tokens},
    {"truncation_side", read_truncation_side},
    {"use_beam_search", read_use_beam_search},
    {"user", read_user},
});
static_assert(is_sorted_table<Reader>(kFields));

void merge_stop_ids(Reader& r) {
  std::vector<TokenId>& ids = r.options.stop_token_ids;
  ids.insert(ids.end(), r.stop_ids.begin(), r.stop_ids.end());
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  if (ids.size() > kMaxStops) {
    r.in.violation(Path("stop_token_ids"), fmt::format("must have at most {} ids", kMaxStops));
  }
}

void check_choices(Reader& r) {
  const GenerateOptions& options = r.options;
  if (options.n > 1 && options.sampling.temperature == 0.0F) {
    r.in.violation(Path("n"), "must be 1 when temperature is 0: all choices would be the same");
  }
  if (options.n > 1 && options.nvext.wants_extra_field("completion_token_ids")) {
    r.in.violation(Path("n"), "must be 1 when nvext.extra_fields asks for completion_token_ids");
  }
}

/// Without text there is nothing but the ids, which come as nvext.completion_token_ids.
void check_detokenize(Reader& r) {
  GenerateOptions& options = r.options;
  if (options.detokenize) {
    return;
  }
  if (!options.stop.empty()) {
    r.in.violation(Path("stop"), "must have no strings when detokenize is false: use token ids");
  }
  if (!r.limits.nvext_enabled) {
    r.in.unsupported(Path("detokenize"),
                     "cannot be false: this server gives no nvext, in which the ids would come");
  } else if (!options.nvext.wants_extra_field("completion_token_ids")) {
    options.nvext.extra_fields.emplace_back("completion_token_ids");
  }
}

/// The prompt's log-probabilities come with a body, or in nvext of a stream's last chunk.
void check_prompt_logprobs(Reader& r) {
  GenerateOptions& options = r.options;
  const bool in_nvext = options.nvext.wants_extra_field("prompt_logprobs");
  if (in_nvext && !options.prompt_logprobs) {
    options.prompt_logprobs = 0;
  }
  if (options.prompt_logprobs && options.stream && !in_nvext) {
    r.in.violation(Path("prompt_logprobs"),
                   "is not available when stream is true: ask nvext.extra_fields for "
                   "prompt_logprobs, too, or leave out stream");
  }
}

}  // namespace

bool read_generate_field(GenerateReader& reader, std::string_view key, const Path& path) {
  if (read_known<GenerateReader>(kFields, key, reader, path)) {
    return true;
  }
  if (!structured::is_source_field(key)) {
    return false;
  }
  read_structured_field(reader, key, path);
  return true;
}

void require_guided_decoding(GenerateReader& reader, const Path& path) {
  if (!reader.limits.guided_decoding) {
    reader.in.unsupported(path, "needs guided decoding, which is not available");
  }
}

std::string read_salt(FieldReader& in, const Path& path) {
  const std::string_view salt = in.string(path).value_or("");
  if (salt.size() > kMaxCacheSaltBytes) {
    in.violation(path, fmt::format("must have at most {} bytes", kMaxCacheSaltBytes));
    return {};
  }
  return std::string(salt);
}

void ignore_field(FieldReader& in, std::vector<std::string>& ignored, std::string_view key) {
  constexpr size_t kNameBytesMax = 64;
  if (ignored.size() < kMaxIgnoredFields) {
    std::string name(key.substr(0, kNameBytesMax));
    // The names go into an HTTP header, whose list separator is the comma.
    std::ranges::replace_if(name, [](char c) { return c <= ' ' || c > '~' || c == ','; }, '?');
    if (std::ranges::find(ignored, name) == ignored.end()) {
      ignored.push_back(std::move(name));
    }
  }
  in.skip();
}

void check_ignored(FieldReader& in, const std::vector<std::string>& ignored,
                   const ParseLimits& limits) {
  if (limits.strict_fields && !ignored.empty()) {
    in.violation(
        Path(ignored.front()),
        fmt::format("is unknown; unknown fields of this request: {}", fmt::join(ignored, ", ")),
        Rank::kRequired);
  }
}

void check_model(FieldReader& in, const std::string& model, const ParseLimits& limits) {
  if (model.empty() && limits.model_required) {
    in.violation(Path("model"), "is required and must not be blank", Rank::kRequired);
  }
}

void note_without_effect(GenerateReader& reader, const Path& path) {
  std::string name = path.text();
  if (std::ranges::find(reader.without_effect, name) == reader.without_effect.end()) {
    reader.without_effect.push_back(std::move(name));
  }
}

namespace {

/// With a value behind a colon, too.
bool is_annotation(std::string_view text) {
  static constexpr std::string_view kKnown[] = {"formatted_prompt",  "keep",       "llm_metrics",
                                                "query_instance_id", "request_id", "token_ids",
                                                "worker_instance_id"};
  return std::ranges::find(kKnown, text.substr(0, text.find(':'))) != std::end(kKnown);
}

/// What nobody acts upon yet.
void note_idle_hints(GenerateReader& r) {
  const Nvext& nvext = r.options.nvext;
  if (!std::ranges::all_of(nvext.annotations, is_annotation)) {
    r.without_effect.emplace_back("nvext.annotations");
  }
  const std::pair<bool, std::string_view> idle[] = {
      {nvext.request_timestamp_ms.has_value(), "nvext.request_timestamp_ms"},
      {nvext.router_overrides.itl_target_ms.has_value(), "nvext.router.itl_target"},
      {nvext.agent_hints.speculative_prefill, "nvext.agent_hints.speculative_prefill"},
  };
  for (const auto& [given, name] : idle) {
    if (given) {
      r.without_effect.emplace_back(name);
    }
  }
}

/// vLLM's `priority` counts down: 0 comes before 1.
void merge_priority(GenerateReader& r) {
  AgentHints& hints = r.options.nvext.agent_hints;
  if (!hints.priority && hints.latency_sensitivity) {
    constexpr double kMost = INT32_MAX;
    hints.priority = static_cast<int32_t>(std::clamp(*hints.latency_sensitivity, -kMost, kMost));
  }
  if (!r.root_priority) {
    return;
  }
  if (!r.limits.nvext_enabled) {
    r.without_effect.emplace_back("priority");
  } else if (!hints.priority) {
    hints.priority = -*r.root_priority;
  }
}

/// Names that other servers have for members of nvext, which win.
void merge_root_hints(GenerateReader& r) {
  Nvext& nvext = r.options.nvext;
  if (!nvext.max_thinking_tokens) {
    nvext.max_thinking_tokens = r.root_thinking_budget;
  }
  if (r.root_dp_rank && !r.limits.nvext_enabled) {
    r.without_effect.emplace_back("data_parallel_rank");
  } else if (!nvext.dp_rank) {
    nvext.dp_rank = r.root_dp_rank;
  }
}

}  // namespace

void finish_generate_options(GenerateReader& reader) {
  GenerateOptions& options = reader.options;
  check_ignored(reader.in, options.ignored_fields, reader.limits);
  check_model(reader.in, options.model, reader.limits);
  if (reader.stream_options_seen && !options.stream) {
    reader.in.violation(Path("stream_options"), "is only allowed when stream is true",
                        Rank::kStreamOptions);
  }
  options.max_tokens =
      reader.max_completion_tokens ? reader.max_completion_tokens : reader.max_tokens;
  if (options.min_tokens && options.max_tokens && *options.min_tokens > *options.max_tokens) {
    reader.in.violation(Path("min_tokens"),
                        fmt::format("must be at most max_tokens, {}", *options.max_tokens));
  }
  finish_structured_output(reader);
  merge_stop_ids(reader);
  if (options.nvext.greed_sampling) {
    options.sampling.temperature = 0.0F;
    options.sampling.top_k = 1;
  }
  check_detokenize(reader);
  check_prompt_logprobs(reader);
  check_choices(reader);
  merge_priority(reader);
  merge_root_hints(reader);
  note_idle_hints(reader);
  std::ranges::move(reader.without_effect, std::back_inserter(options.ignored_fields));
  if (reader.limits.nvext_enabled) {
    options.cache_salt = std::move(reader.nvext_cache_salt.empty() ? reader.root_cache_salt
                                                                   : reader.nvext_cache_salt);
    return;
  }
  // Known, and without effect here: the client must see why.
  if (reader.nvext_dropped) {
    options.ignored_fields.emplace_back("nvext");
  }
  if (!reader.root_cache_salt.empty()) {
    options.ignored_fields.emplace_back("cache_salt");
  }
}

void append_generate_names(std::vector<std::string_view>& out) {
  append_names<GenerateReader>(kFields, out);
}

}  // namespace stator::api
