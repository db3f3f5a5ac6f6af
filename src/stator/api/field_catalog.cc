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
    R"({"anyOf":[{"type":"string","minLength":1},
{"type":"array","minItems":1,"maxItems":128,"items":{"type":"string","minLength":1}},
{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":4294967295}},
{"type":"array","minItems":1,"maxItems":128,"items":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":4294967295}}}]})";
// The same with as many texts as a request for vectors may have.
constexpr std::string_view kInputs =
    R"({"anyOf":[{"type":"string","minLength":1},
{"type":"array","minItems":1,"maxItems":2048,"items":{"type":"string","minLength":1}},
{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":4294967295}},
{"type":"array","minItems":1,"maxItems":2048,"items":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":4294967295}}}]})";
// Of questions and documents.
constexpr std::string_view kRankedTexts =
    R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"anyOf":[{"type":"string","minLength":1},{"type":"object","properties":{"text":{"type":"string","minLength":1}},"required":["text"]}]}}]})";
constexpr std::string_view kTokensMax =
    R"({"type":["integer","null"],"minimum":1,"maximum":1048576})";
constexpr std::string_view kFraction = R"({"type":["number","null"],"minimum":0,"maximum":1})";
constexpr std::string_view kPenalty = R"({"type":["number","null"],"minimum":-2,"maximum":2})";
constexpr std::string_view kAnything = "{}";

// Of all bodies; sorted.
constexpr auto kSchemas = std::to_array<Schema>({
    {"activation", kBool},
    {"add_generation_prompt", kBool},
    {"add_special_tokens", kBool},
    {"allowed_token_ids", kIds},
    {"audio", kObject},
    {"bad_words",
     R"({"type":["array","null"],"maxItems":1024,"items":{"type":"string","minLength":1,"maxLength":256}})"},
    {"bad_words_token_ids", R"({"type":["array","null"]})"},
    {"best_of", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"cache_salt", R"({"type":["string","null"],"minLength":1,"maxLength":64})"},
    {"chat_template", kText},
    {"chat_template_args", kObject},
    {"chat_template_kwargs", kObject},
    {"continue_final_message", kBool},
    {"custom_logit_processor", kText},
    {"data_1", kRankedTexts},
    {"data_2", kRankedTexts},
    {"data_parallel_rank", R"({"type":["integer","null"],"minimum":0,"maximum":4294967295})"},
    {"detokenize", kBool},
    {"dimensions", R"({"type":["integer","null"],"minimum":1,"maximum":65536})"},
    {"documents", kRankedTexts},
    {"ebnf", kText},
    {"echo", kBool},
    {"embed_dtype", R"({"enum":["float32",null]})"},
    {"embedding_types",
     R"({"type":["array","null"],"items":{"enum":["float","base64","binary","ubinary"]}})"},
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
    {"images", R"({"type":["array","null"],"maxItems":0})"},
    {"include_reasoning", kBool},
    {"include_stop_str_in_output", kBool},
    {"input", kInputs},
    {"input_type",
     R"({"enum":["search_document","search_query","classification","clustering","image",null]})"},
    {"inputs", kInputs},
    {"items", kRankedTexts},
    {"json_schema", kAnything},
    {"kv_transfer_params", kObject},
    {"length_penalty", R"({"type":["number","null"],"minimum":-2,"maximum":2})"},
    {"logit_bias",
     R"({"type":["object","null"],"maxProperties":300,"propertyNames":{"pattern":"^(0|[1-9][0-9]{0,8})$"},"additionalProperties":{"type":"number","minimum":-100,"maximum":100}})"},
    {"logits_processors", kAnything},
    {"logprob_token_ids", kIds},
    {"logprobs", kBool},
    {"lora_path", kText},
    {"max_completion_tokens", kTokensMax},
    {"max_tokens", kTokensMax},
    {"max_tokens_per_doc", R"({"type":["integer","null"],"minimum":1,"maximum":4294967295})"},
    {"media_io_kwargs", kObject},
    {"messages",
     R"({"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/ChatMessage"}})"},
    {"metadata", kObject},
    {"min_p", kFraction},
    {"min_tokens", R"({"type":["integer","null"],"minimum":0,"maximum":1048576})"},
    {"mm_processor_kwargs", kObject},
    {"modalities", R"({"type":["array","null"],"items":{"const":"text"}})"},
    {"model", R"({"type":"string","minLength":1,"pattern":"\\S"})"},
    {"n", R"({"type":["integer","null"],"minimum":1,"maximum":128})"},
    {"normalize", kBool},
    {"nvext", kObject},
    {"output_dimension", R"({"type":["integer","null"],"minimum":1,"maximum":65536})"},
    {"parallel_tool_calls", kBool},
    {"parameters", kObject},
    {"prediction", kObject},
    {"presence_penalty", kPenalty},
    {"priority", R"({"type":["integer","null"],"minimum":-2147483647,"maximum":2147483647})"},
    {"prompt", kTexts},
    {"prompt_embeds", kAnything},
    {"prompt_logprobs", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"queries", kRankedTexts},
    {"query",
     R"({"anyOf":[{"type":"string","minLength":1},{"type":"object","properties":{"text":{"type":"string","minLength":1}},"required":["text"]}]})"},
    {"raw_scores", kBool},
    {"reasoning_effort", kText},
    {"regex", kText},
    {"repetition_penalty", R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":2})"},
    {"response_format",
     R"({"anyOf":[{"type":"object","properties":{"type":{"enum":["text","json_object"]}},"required":["type"]},{"type":"object","properties":{"type":{"const":"json_schema"},"json_schema":{"type":"object","properties":{"name":{"type":"string","minLength":1},"schema":{"type":"object"}},"required":["name","schema"]}},"required":["type","json_schema"]},{"type":"null"}]})"},
    {"return_documents", kBool},
    {"return_text", kBool},
    {"return_token_ids", kBool},
    {"return_token_strs", kBool},
    {"return_tokens_as_token_ids", kBool},
    {"seed",
     R"({"type":["integer","null"],"minimum":-9223372036854775808,"maximum":9223372036854775807})"},
    {"service_tier", kText},
    {"skip_special_tokens", kBool},
    {"softmax", kBool},
    {"stop",
     R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","maxItems":32,"items":{"anyOf":[{"type":"string","minLength":1},{"type":"integer","minimum":0,"maximum":4294967295}]}},{"type":"null"}]})"},
    {"stop_token_ids",
     R"({"type":["array","null"],"maxItems":32,"items":{"type":"integer","minimum":0,"maximum":4294967295}})"},
    {"store", kBool},
    {"stream", kBool},
    {"stream_options",
     R"({"type":["object","null"],"properties":{"include_usage":{"type":["boolean","null"]},"continuous_usage_stats":{"type":["boolean","null"]}}})"},
    {"structural_tag", kAnything},
    {"structured_outputs", kObject},
    {"suffix", R"({"type":["string","null"],"maxLength":10000})"},
    {"task", R"({"enum":["embed","token_embed","classify","score",null]})"},
    {"temperature", R"({"type":["number","null"],"minimum":0,"maximum":2})"},
    {"text_1", kRankedTexts},
    {"text_2", kRankedTexts},
    {"texts", kRankedTexts},
    {"thinking",
     R"({"anyOf":[{"type":["boolean","null"]},{"type":"object","properties":{"type":{"enum":["enabled","disabled","adaptive"]}}}]})"},
    {"thinking_token_budget", R"({"type":["integer","null"],"minimum":0,"maximum":4294967295})"},
    {"tokens", R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":4294967295}})"},
    {"tool_choice",
     R"({"anyOf":[{"enum":["none","auto","required",null]},{"type":"object","properties":{"type":{"const":"function"},"function":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}},"required":["type","function"]},
{"type":"object","properties":{"type":{"const":"allowed_tools"},"allowed_tools":{"type":"object","properties":{"mode":{"enum":["auto","required"]},"tools":{"type":"array","minItems":1,"items":{"type":"object"}}},"required":["mode","tools"]}},"required":["type","allowed_tools"]}]})"},
    {"tools",
     R"({"type":["array","null"],"maxItems":1536,"items":{"$ref":"#/components/schemas/Tool"}})"},
    {"top_k", R"({"type":["integer","null"],"minimum":-1,"maximum":2147483647})"},
    {"top_logprobs", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"top_n", R"({"type":["integer","null"],"minimum":0,"maximum":4294967295})"},
    {"top_p", R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":1})"},
    {"truncate", kBool},
    {"truncate_prompt_tokens",
     R"({"anyOf":[{"type":"integer","minimum":1,"maximum":2147483647},{"enum":[-1,null]}]})"},
    {"truncation_direction", R"({"enum":["Left","left","Right","right",null]})"},
    {"truncation_side", R"({"enum":["left","right",null]})"},
    {"use_activation", kBool},
    {"use_beam_search", kBool},
    {"user", R"({"type":["string","null"],"minLength":1,"pattern":"\\S"})"},
});
static_assert(std::ranges::is_sorted(kSchemas, {}, &Schema::name));

/// What a body must have, as members of its schema.
struct Body {
  BodyKind kind;
  std::string_view rules;
};
constexpr std::string_view kInputOrMessages =
    R"("oneOf":[{"required":["input"]},{"required":["messages"]}])";
constexpr std::string_view kInputsRequired = R"("required":["inputs"])";
constexpr auto kBodies = std::to_array<Body>({
    {BodyKind::kChat, R"("required":["model","messages"])"},
    {BodyKind::kCompletion, R"("required":["model","prompt"])"},
    {BodyKind::kTokenize, R"("oneOf":[{"required":["prompt"]},{"required":["messages"]}])"},
    {BodyKind::kDetokenize, R"("required":["tokens"])"},
    {BodyKind::kEmbeddings,
     R"("required":["model"],"oneOf":[{"required":["input"]},{"required":["messages"]}])"},
    {BodyKind::kRerank,
     R"("required":["query"],"anyOf":[{"required":["documents"]},{"required":["texts"]}])"},
    {BodyKind::kScore,
     R"("anyOf":[{"required":["text_1","text_2"]},{"required":["data_1","data_2"]},
{"required":["queries","documents"]},{"required":["queries","items"]}])"},
    {BodyKind::kClassify, kInputOrMessages},
    {BodyKind::kPooling, kInputOrMessages},
    {BodyKind::kCohereEmbed,
     R"("required":["model"],"anyOf":[{"required":["texts"]},{"required":["inputs"]}])"},
    {BodyKind::kTeiEmbed, kInputsRequired},
    {BodyKind::kTeiEmbedAll, kInputsRequired},
    {BodyKind::kTeiPredict, kInputsRequired},
    {BodyKind::kTeiSimilarity, kInputsRequired},
});

// Sorted. Read, so that a client that needs them learns it: the engines here cannot do them.
constexpr auto kRefused = std::to_array<std::string_view>(
    {"bad_words_token_ids", "chat_template", "function_call", "functions", "kv_transfer_params",
     "logprob_token_ids", "prompt_embeds", "use_beam_search"});
static_assert(std::ranges::is_sorted(kRefused));

/// Shapes of the output: structured::is_source_field().
constexpr std::array<std::string_view, 11> kStructuredNames = {"ebnf",
                                                               "guided_choice",
                                                               "guided_grammar",
                                                               "guided_decoding_backend",
                                                               "guided_json",
                                                               "guided_regex",
                                                               "regex",
                                                               "guided_whitespace_pattern",
                                                               "json_schema",
                                                               "structural_tag",
                                                               "structured_outputs"};

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
    case BodyKind::kCohereEmbed:
      add_pool(PoolKind::kCohereEmbed);
      break;
    case BodyKind::kTeiEmbed:
    case BodyKind::kTeiEmbedAll:
      add_pool(PoolKind::kTeiEmbed);
      break;
    case BodyKind::kTeiPredict:
      add_pool(PoolKind::kTeiPredict);
      break;
    case BodyKind::kTeiSimilarity:
      add_pool(PoolKind::kTeiSimilarity);
      break;
  }
  std::ranges::sort(names);
  return names;
}

bool is_refused_field(std::string_view field) {
  return std::ranges::binary_search(kRefused, field);
}

namespace {

/// Of names that mean something else in Cohere's requests and text-embeddings-inference's.
std::string_view dialect_schema(BodyKind kind, std::string_view field) {
  if (field == "texts") {
    return R"({"type":"array","minItems":1,"items":{"type":"string","minLength":1}})";
  }
  if (kind == BodyKind::kCohereEmbed && field == "truncate") {
    return R"({"enum":["NONE","START","END",null]})";
  }
  if (kind == BodyKind::kCohereEmbed && field == "inputs") {
    return R"({"type":"array","minItems":1,"items":{"type":"object","properties":{"content":{"type":"array","minItems":1,"items":{"type":"object","properties":{"type":{"const":"text"},"text":{"type":"string","minLength":1}},"required":["type","text"]}}},"required":["content"]}})";
  }
  if (kind == BodyKind::kTeiPredict && field == "inputs") {
    return R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","minItems":1,"items":{"type":"array","minItems":1,"maxItems":1,"items":{"type":"string","minLength":1}}}]})";
  }
  if (kind == BodyKind::kTeiSimilarity && field == "inputs") {
    return R"({"type":"object","properties":{"source_sentence":{"type":"string","minLength":1},"sentences":{"type":"array","minItems":1,"items":{"type":"string","minLength":1}}},"required":["source_sentence","sentences"]})";
  }
  return {};
}

/// Whether a request of that kind may leave the model out, where one is served.
bool may_omit_model(BodyKind kind) {
  return kind != BodyKind::kChat && kind != BodyKind::kCompletion &&
         kind != BodyKind::kEmbeddings && kind != BodyKind::kCohereEmbed;
}

}  // namespace

std::string_view field_schema(BodyKind kind, std::string_view field) {
  if (field == "model" && may_omit_model(kind)) {
    return R"({"type":["string","null"]})";
  }
  if (kind == BodyKind::kTokenize && field == "prompt") {
    return R"({"type":"string"})";
  }
  if ((kind == BodyKind::kChat || kind == BodyKind::kTokenize) && field == "documents") {
    return R"({"type":["array","null"]})";
  }
  if (kind == BodyKind::kCompletion && field == "logprobs") {
    return R"({"type":["integer","null"],"minimum":0,"maximum":5})";
  }
  if (kind == BodyKind::kCompletion && field == "max_tokens") {
    return R"({"type":["integer","null"],"minimum":0,"maximum":1048576})";
  }
  if (kind == BodyKind::kCohereEmbed || kind >= BodyKind::kTeiPredict) {
    if (const std::string_view own = dialect_schema(kind, field); !own.empty()) {
      return own;
    }
  }
  const auto* const found = std::ranges::lower_bound(kSchemas, field, {}, &Schema::name);
  return found != kSchemas.end() && found->name == field ? found->json : std::string_view();
}

std::string body_schema(BodyKind kind) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("type").value("object").key("properties").begin_object();
  const auto fields = body_fields(kind);
  for (const std::string_view name : fields) {
    if (!is_refused_field(name)) {
      json.key(name).raw(field_schema(kind, name));
    }
  }
  json.end_object().key("x-stator-refused").begin_array();
  for (const std::string_view name : fields) {
    if (is_refused_field(name)) {
      json.value(name);
    }
  }
  json.end_array().end_object();
  out.back() = ',';  // the object goes on
  out += kBodies[static_cast<size_t>(kind)].rules;
  return out + '}';
}

}  // namespace stator::api
