// SPDX-License-Identifier: Apache-2.0
#include "stator/api/field_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "stator/api/detail/field_names.h"
#include "stator/api/pool_request.h"
#include "stator/json/writer.h"

namespace stator::api {
namespace {

struct Schema {
  std::string_view name;
  std::string_view json;
};

constexpr std::string_view kBool = R"({"type":["boolean","null"]})";
constexpr std::string_view kText = R"({"type":["string","null"]})";
constexpr std::string_view kObject = R"({"type":["object","null"]})";
constexpr std::string_view kIds =
    R"({"type":["array","null"],"items":{"type":"integer","minimum":0,"maximum":4294967295}})";
constexpr std::string_view kTexts =
    R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","minItems":1}]})";
constexpr std::string_view kFraction = R"({"type":["number","null"],"minimum":0,"maximum":1})";
constexpr std::string_view kPenalty = R"({"type":["number","null"],"minimum":-2,"maximum":2})";
constexpr std::string_view kCount = R"({"type":["integer","null"],"minimum":0})";
constexpr std::string_view kAtLeastOne = R"({"type":["integer","null"],"minimum":1})";
constexpr std::string_view kAnything = "{}";

// Of all bodies; sorted.
constexpr auto kSchemas = std::to_array<Schema>({
    {"activation", kBool},
    {"add_generation_prompt", kBool},
    {"add_special_tokens", kBool},
    {"allowed_token_ids", kIds},
    {"audio", kObject},
    {"bad_words", kTexts},
    {"bad_words_token_ids", R"({"type":["array","null"]})"},
    {"best_of", kCount},
    {"cache_salt", kText},
    {"chat_template", kText},
    {"chat_template_args", kObject},
    {"chat_template_kwargs", kObject},
    {"continue_final_message", kBool},
    {"data_1", kTexts},
    {"data_2", kTexts},
    {"detokenize", kBool},
    {"dimensions", R"({"type":["integer","null"],"minimum":1,"maximum":65536})"},
    {"documents", R"({"type":["array","string","null"]})"},
    {"echo", kBool},
    {"embed_dtype", R"({"enum":["float32",null]})"},
    {"encoding_format", R"({"enum":["float","base64","bytes","bytes_only",null]})"},
    {"endianness", R"({"enum":["native","little",null]})"},
    {"frequency_penalty", kPenalty},
    {"function_call", kAnything},
    {"functions", kAnything},
    {"guided_choice", R"({"type":["array","null"],"items":{"type":"string"}})"},
    {"guided_decoding_backend", kText},
    {"guided_grammar", kText},
    {"guided_json", R"({"type":["object","string","boolean","null"]})"},
    {"guided_regex", kText},
    {"guided_whitespace_pattern", kText},
    {"ignore_eos", kBool},
    {"include_stop_str_in_output", kBool},
    {"input", kTexts},
    {"items", kTexts},
    {"kv_transfer_params", kObject},
    {"length_penalty", R"({"type":["number","null"]})"},
    {"logit_bias", R"({"type":["object","null"]})"},
    {"logprob_token_ids", kIds},
    {"logprobs", kBool},
    {"max_completion_tokens", kAtLeastOne},
    {"max_tokens", kAtLeastOne},
    {"max_tokens_per_doc", kAtLeastOne},
    {"media_io_kwargs", kObject},
    {"messages", R"({"type":["array","null"],"items":{"type":"object"}})"},
    {"metadata", kObject},
    {"min_p", kFraction},
    {"min_tokens", kCount},
    {"mm_processor_kwargs", kObject},
    {"modalities", R"({"type":["array","null"],"items":{"type":"string"}})"},
    {"model", R"({"type":"string","minLength":1})"},
    {"n", R"({"type":["integer","null"],"minimum":1,"maximum":128})"},
    {"normalize", kBool},
    {"nvext", kObject},
    {"parallel_tool_calls", kBool},
    {"prediction", kObject},
    {"presence_penalty", kPenalty},
    {"priority", R"({"type":["integer","null"]})"},
    {"prompt", kTexts},
    {"prompt_embeds", kAnything},
    {"prompt_logprobs", kCount},
    {"queries", kTexts},
    {"query", R"({"anyOf":[{"type":"string","minLength":1},{"type":"object"},{"type":"array"}]})"},
    {"reasoning_effort", kText},
    {"repetition_penalty", R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":2})"},
    {"response_format", kObject},
    {"return_documents", kBool},
    {"return_token_strs", kBool},
    {"return_tokens_as_token_ids", kBool},
    {"seed", R"({"type":["integer","null"]})"},
    {"service_tier", kText},
    {"skip_special_tokens", kBool},
    {"softmax", kBool},
    {"stop", R"({"type":["string","array","null"]})"},
    {"stop_token_ids", kIds},
    {"store", kBool},
    {"stream", kBool},
    {"stream_options", kObject},
    {"structural_tag", kAnything},
    {"structured_outputs", kObject},
    {"suffix", kText},
    {"task", R"({"enum":["embed","token_embed","classify","score","",null]})"},
    {"temperature", R"({"type":["number","null"],"minimum":0,"maximum":2})"},
    {"text_1", kTexts},
    {"text_2", kTexts},
    {"thinking", R"({"type":["boolean","object","null"]})"},
    {"tokens", R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":4294967295}})"},
    {"tool_choice", R"({"type":["string","object","null"]})"},
    {"tools", R"({"type":["array","null"],"items":{"type":"object"}})"},
    {"top_k", R"({"type":["integer","null"],"minimum":-1})"},
    {"top_logprobs", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"top_n", kCount},
    {"top_p", kFraction},
    {"truncate_prompt_tokens", R"({"type":["integer","null"],"minimum":-1})"},
    {"use_activation", kBool},
    {"use_beam_search", kBool},
    {"user", kText},
});
static_assert(std::ranges::is_sorted(kSchemas, {}, &Schema::name));

/// What a body must have, and the name of its schema.
struct Body {
  BodyKind kind;
  std::string_view required;  ///< JSON array
};
constexpr auto kBodies = std::to_array<Body>({
    {BodyKind::kChat, R"(["model","messages"])"},
    {BodyKind::kCompletion, R"(["model","prompt"])"},
    {BodyKind::kTokenize, R"(["model"])"},
    {BodyKind::kDetokenize, R"(["model","tokens"])"},
    {BodyKind::kEmbeddings, R"(["model"])"},
    {BodyKind::kRerank, R"(["model","query","documents"])"},
    {BodyKind::kScore, R"(["model"])"},
    {BodyKind::kClassify, R"(["model"])"},
    {BodyKind::kPooling, R"(["model"])"},
});

/// Shapes of the output: structured::is_source_field().
constexpr std::array<std::string_view, 8> kStructuredNames = {
    "guided_choice", "guided_decoding_backend",   "guided_grammar", "guided_json",
    "guided_regex",  "guided_whitespace_pattern", "structural_tag", "structured_outputs"};

}  // namespace

std::vector<std::string_view> body_fields(BodyKind kind) {
  std::vector<std::string_view> names;
  const auto add_pool = [&](PoolKind pool) { names = pool_fields(pool); };
  switch (kind) {
    case BodyKind::kChat:
      append_chat_names(names);
      append_chat_input_names(names);
      append_generate_names(names);
      names.insert(names.end(), kStructuredNames.begin(), kStructuredNames.end());
      break;
    case BodyKind::kCompletion:
      append_completion_names(names);
      append_generate_names(names);
      names.insert(names.end(), kStructuredNames.begin(), kStructuredNames.end());
      break;
    case BodyKind::kTokenize:
      append_tokenize_names(names);
      append_chat_input_names(names);
      break;
    case BodyKind::kDetokenize:
      names = {"model", "tokens"};
      break;
    case BodyKind::kEmbeddings:
      add_pool(PoolKind::kEmbeddings);
      break;
    case BodyKind::kRerank:
      add_pool(PoolKind::kRerank);
      break;
    case BodyKind::kScore:
      add_pool(PoolKind::kScore);
      break;
    case BodyKind::kClassify:
      add_pool(PoolKind::kClassify);
      break;
    case BodyKind::kPooling:
      add_pool(PoolKind::kPooling);
      break;
  }
  std::ranges::sort(names);
  return names;
}

std::string_view field_schema(BodyKind kind, std::string_view field) {
  if (kind == BodyKind::kCompletion && field == "logprobs") {
    return R"({"type":["integer","null"],"minimum":0,"maximum":5})";
  }
  const auto* const found = std::ranges::lower_bound(kSchemas, field, {}, &Schema::name);
  return found != kSchemas.end() && found->name == field ? found->json : std::string_view();
}

std::string body_schema(BodyKind kind) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("type").value("object").key("properties").begin_object();
  for (const std::string_view name : body_fields(kind)) {
    const std::string_view schema = field_schema(kind, name);
    json.key(name).raw(schema.empty() ? kAnything : schema);
  }
  json.end_object().key("required").raw(kBodies[static_cast<size_t>(kind)].required);
  json.end_object();
  return out;
}

}  // namespace stator::api
