// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/lower.h"

#include <fmt/format.h>

#include <utility>

#include "stator/structured/detail/json_tree.h"
#include "stator/structured/grammar.h"
#include "stator/structured/json_schema.h"
#include "stator/structured/regex.h"

namespace stator::structured {
namespace {

using enum SchemaFeature;
using Fields = std::vector<EngineField>;

constexpr std::string_view kAnyObject = R"({"type":"object"})";

// What xgrammar enforces; it takes an allOf with several members for "anything".
constexpr SchemaFeatures kOursAlone =
    SchemaFeatures().with(kAllOf).with(kSiblings).with(kTupleItems);
constexpr SchemaFeatures kXgrammar =
    SchemaFeatures::all().without(kOursAlone).without(SchemaFeatures().with(kMultipleOf));
// vLLM hands multipleOf to another library.
constexpr SchemaFeatures kVllmSchema = SchemaFeatures::all().without(kOursAlone);
// llama.cpp merges allOf, and silently ignores the rest.
constexpr SchemaFeatures kLlamaCppSchema = SchemaFeatures().with(kAllOf);

// Kinds in the order of Constraint: schema, regex, choice, grammar, object, tag.
constexpr std::array<EngineCapabilities, kDialectCount> kCapabilities = {{
    {.name = "vLLM",
     .kinds = {true, true, true, true, true, true},
     .lark = true,
     .legacy_tags = true,
     .whitespace_pattern = true,
     .json_options = true,
     .after_reasoning = true,
     .schema = kVllmSchema},
    {.name = "vLLM before 0.12",
     .kinds = {true, true, true, true, true, true},
     .lark = true,
     .legacy_tags = true,
     .whitespace_pattern = true,
     .after_reasoning = true,
     .schema = kVllmSchema},
    {.name = "SGLang",
     .kinds = {true, true, true, true, true, true},
     .legacy_tags = true,
     .after_reasoning = true,
     .schema = kXgrammar},
    {.name = "TensorRT-LLM", .kinds = {true, true, true, true, true, true}, .schema = kXgrammar},
    {.name = "llama.cpp",
     .kinds = {true, true, true, true, true, false},
     .schema = kLlamaCppSchema},
    {.name = "an OpenAI-compatible server",
     .kinds = {true, false, false, false, true, false},
     .after_reasoning = true,
     .schema = SchemaFeatures::all()},
}};

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

Refusal cannot(const EngineCapabilities& engine, std::string_view what, std::string_view remedy) {
  return {
      Code::kUnsupported, {}, fmt::format("{} cannot enforce {}: {}", engine.name, what, remedy)};
}

// ---- whether the engine could keep the promise

Check check_schema(const EngineCapabilities& engine, std::string_view schema,
                   SchemaFeatures features, bool findable) {
  const SchemaFeatures missing = features.without(engine.schema);
  if (missing.empty()) {
    return {};
  }
  SchemaFeature first = kMultipleOf;
  for (uint8_t i = 0; i < kSchemaFeatureCount; ++i) {
    if (missing.has(static_cast<SchemaFeature>(i))) {
      first = static_cast<SchemaFeature>(i);
      break;
    }
  }
  const std::string place =
      findable ? " at " + find_schema_feature(schema, SchemaFeatures().with(first)) : "";
  return cannot(engine, fmt::format("{}{}", keyword(first), place),
                "leave it out of the schema, or use a model on another engine");
}

Check check_options(const EngineCapabilities& engine, const StructuredOutput& output) {
  const bool is_json = output.kind() == Kind::kJsonSchema || output.kind() == Kind::kJsonObject;
  if (is_json && !output.whitespace_pattern.empty() && !engine.whitespace_pattern) {
    return cannot(engine, "a whitespace pattern", "leave it out");
  }
  if (is_json && output.disable_any_whitespace && !engine.json_options) {
    return cannot(engine, "disable_any_whitespace", "leave it out");
  }
  if (is_json && output.disable_additional_properties && !engine.json_options) {
    return cannot(engine, "disable_additional_properties",
                  "write additionalProperties: false in the schema");
  }
  if (output.require_reasoning && !engine.after_reasoning) {
    return cannot(engine, fmt::format("{} after reasoning", describe(output.kind())),
                  "switch the model's reasoning off for this request");
  }
  return {};
}

Check check_capabilities(const EngineCapabilities& engine, const StructuredOutput& output) {
  if (!engine.kinds[output.constraint.index()]) {
    return cannot(engine, describe(output.kind()),
                  "use a JSON schema, or a model on another engine");
  }
  STATOR_CHECK(check_options(engine, output));
  if (const auto* schema = std::get_if<JsonSchema>(&output.constraint)) {
    return check_schema(engine, schema->text, schema->features, true);
  }
  if (const auto* tag = std::get_if<StructuralTag>(&output.constraint)) {
    if (!tag->has_format && !engine.legacy_tags) {
      return cannot(engine, "a structural tag with structures and triggers",
                    "write it with format");
    }
    return check_schema(engine, {}, tag->features, false);
  }
  const auto* grammar = std::get_if<Grammar>(&output.constraint);
  if (grammar != nullptr && grammar->syntax == Grammar::Syntax::kLark && !engine.lark) {
    return cannot(engine, "a Lark grammar", "write it as EBNF (root ::= …)");
  }
  return {};
}

// ---- one engine each

std::string json_array(const std::vector<std::string>& strings) {
  std::string out = "[";
  for (const std::string& text : strings) {
    out += out.size() > 1 ? "," : "";
    append_json_string(out, text);
  }
  return out + "]";
}

Fields lower_vllm(const StructuredOutput& output) {
  // Routes that know reasoning wait for its end unless told that there is none.
  return {
      {"structured_outputs", encode(output)},
      {"reasoning_ended", output.require_reasoning ? "false" : "true", EngineField::Place::kBody}};
}

Fields lower_vllm_guided(const StructuredOutput& output) {
  Fields fields = {std::visit(
      Overloaded{
          [](const JsonSchema& schema) { return EngineField{"guided_json", schema.text}; },
          [](const Regex& regex) {
            return EngineField{"guided_regex", json_string(regex.pattern)};
          },
          [](const Choice& choice) {
            return EngineField{"guided_choice", json_array(choice.options)};
          },
          [](const Grammar& grammar) {
            return EngineField{"guided_grammar", json_string(grammar.text)};
          },
          [](const JsonObject&) {
            return EngineField{"response_format", R"({"type":"json_object"})"};
          },
          [](const StructuralTag& tag) { return EngineField{"response_format", tag.text}; },
      },
      output.constraint)};
  if (!output.whitespace_pattern.empty()) {
    fields.push_back({"guided_whitespace_pattern", json_string(output.whitespace_pattern)});
  }
  if (!output.backend.empty()) {
    fields.push_back({"guided_decoding_backend", json_string(output.backend)});
  }
  return fields;
}

// Every value is a string there, schemas and tags as well.
Fields lower_sglang(const StructuredOutput& output) {
  const auto field = [](std::string_view name, std::string_view text) {
    return EngineField{name, json_string(text)};
  };
  Fields fields = {std::visit(
      Overloaded{
          [&](const JsonSchema& schema) { return field("json_schema", schema.text); },
          [&](const Regex& regex) { return field("regex", regex.pattern); },
          [&](const Choice& choice) { return field("regex", choice_to_regex(choice.options)); },
          [&](const Grammar& grammar) { return field("ebnf", grammar.text); },
          [&](const JsonObject&) { return field("json_schema", kAnyObject); },
          [&](const StructuralTag& tag) { return field("structural_tag", tag.text); },
      },
      output.constraint)};
  if (output.require_reasoning) {
    fields.push_back({"require_reasoning", "true", EngineField::Place::kBody});
  }
  return fields;
}

// The request is rejected for any key its type does not have.
Fields lower_tensorrt_llm(const StructuredOutput& output) {
  const auto regex_format = [](std::string_view pattern) {
    return fmt::format(R"({{"type":"regex","regex":{}}})", json_string(pattern));
  };
  std::string format = std::visit(
      Overloaded{
          [](const JsonSchema& schema) {
            return fmt::format(R"({{"type":"json","schema":{}}})", schema.text);
          },
          [&](const Regex& regex) { return regex_format(regex.pattern); },
          [&](const Choice& choice) { return regex_format(choice_to_regex(choice.options)); },
          [](const Grammar& grammar) {
            return fmt::format(R"({{"type":"ebnf","ebnf":{}}})", json_string(grammar.text));
          },
          [](const JsonObject&) { return std::string(R"({"type":"json_object"})"); },
          [](const StructuralTag& tag) { return tag.text; },
      },
      output.constraint);
  return {{"response_format", std::move(format)}};
}

Outcome<Fields> lower_llama_cpp(const StructuredOutput& output) {
  const auto grammar_field = [](std::string_view gbnf) {
    return EngineField{"grammar", json_string(gbnf)};
  };
  if (const auto* grammar = std::get_if<Grammar>(&output.constraint)) {
    STATOR_TRY(const std::string gbnf, ebnf_to_gbnf(grammar->text));
    return Fields{grammar_field(gbnf)};
  }
  if (const auto* regex = std::get_if<Regex>(&output.constraint)) {
    return Fields{grammar_field(regex_to_gbnf(regex->pattern))};
  }
  if (const auto* choice = std::get_if<Choice>(&output.constraint)) {
    return Fields{grammar_field(choice_to_gbnf(choice->options))};
  }
  const auto* schema = std::get_if<JsonSchema>(&output.constraint);
  return Fields{{"json_schema", schema != nullptr ? schema->text : std::string(kAnyObject)}};
}

Fields lower_openai(const StructuredOutput& output) {
  const auto* schema = std::get_if<JsonSchema>(&output.constraint);
  if (schema == nullptr) {
    return {{"response_format", R"({"type":"json_object"})"}};
  }
  std::string json = fmt::format(R"({{"type":"json_schema","json_schema":{{"name":{},)",
                                 json_string(schema->name.empty() ? "output" : schema->name));
  if (!schema->description.empty()) {
    json += fmt::format(R"("description":{},)", json_string(schema->description));
  }
  // Without strict such servers only suggest the schema to the model.
  json +=
      fmt::format(R"("strict":{},"schema":{}}}}})", schema->strict.value_or(true), schema->text);
  return {{"response_format", std::move(json)}};
}

}  // namespace

const EngineCapabilities& capabilities(Dialect dialect) {
  return kCapabilities[static_cast<size_t>(dialect)];
}

Outcome<std::vector<EngineField>> lower(const StructuredOutput& output, Dialect dialect) {
  STATOR_CHECK(check_capabilities(capabilities(dialect), output));
  switch (dialect) {
    case Dialect::kVllm:
      return lower_vllm(output);
    case Dialect::kVllmGuided:
      return lower_vllm_guided(output);
    case Dialect::kSglang:
      return lower_sglang(output);
    case Dialect::kTensorRtLlm:
      return lower_tensorrt_llm(output);
    case Dialect::kLlamaCpp:
      return lower_llama_cpp(output);
    case Dialect::kOpenAi:
      break;
  }
  return lower_openai(output);
}

std::string encode(const StructuredOutput& output) {
  std::string json = std::visit(
      Overloaded{
          [](const JsonSchema& schema) { return "\"json\":" + schema.text; },
          [](const Regex& regex) { return "\"regex\":" + json_string(regex.pattern); },
          [](const Choice& choice) { return "\"choice\":" + json_array(choice.options); },
          [](const Grammar& grammar) { return "\"grammar\":" + json_string(grammar.text); },
          [](const JsonObject&) { return std::string("\"json_object\":true"); },
          [](const StructuralTag& tag) { return "\"structural_tag\":" + json_string(tag.text); },
      },
      output.constraint);
  if (!output.whitespace_pattern.empty()) {
    json += ",\"whitespace_pattern\":" + json_string(output.whitespace_pattern);
  }
  json += output.disable_any_whitespace ? ",\"disable_any_whitespace\":true" : "";
  json += output.disable_additional_properties ? ",\"disable_additional_properties\":true" : "";
  return "{" + json + "}";
}

}  // namespace stator::structured
