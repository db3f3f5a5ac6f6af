// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/lower.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "stator/core/random.h"
#include "stator/structured/detail/json_tree.h"
#include "stator/structured/grammar.h"
#include "stator/structured/json_schema.h"
#include "stator/structured/read_request.h"
#include "stator/structured/regex.h"
#include "stator/structured/structural_tag.h"
#include "stator/structured/test/expect.h"
#include "stator/structured/tool_constraint.h"

namespace stator::structured {
namespace {

constexpr std::array<std::string_view, kDialectCount> kDialectNames = {
    "vllm", "vllm_guided", "sglang", "tensorrt_llm", "llama_cpp", "openai"};

std::vector<Dialect> all_dialects() {
  std::vector<Dialect> out;
  for (size_t i = 0; i < kDialectCount; ++i) {
    out.push_back(static_cast<Dialect>(i));
  }
  return out;
}

StructuredOutput read(std::string_view field, std::string_view json) {
  const SourceField fields[] = {{field, json}};
  auto outcome = read_structured_output(fields);
  EXPECT_TRUE(outcome.has_value() && outcome->has_value()) << verdict(outcome) << json;
  return std::move(**outcome);
}

std::string show(const StructuredOutput& output, Dialect dialect) {
  const auto fields = lower(output, dialect);
  if (!fields.has_value()) {
    return "refused: " + fields.error().text + "\n";
  }
  std::string out;
  for (const EngineField& field : *fields) {
    out += fmt::format("{}{}: {}\n", field.place == EngineField::Place::kBody ? "body." : "",
                       field.name, field.json);
  }
  return out;
}

// Every source of a constraint for every engine, compared with testdata/lowered.txt. Run with
// STATOR_UPDATE_GOLDENS=1 to write the file anew, then read the difference.
TEST(Lower, WritesEverySourceForEveryEngine) {
  const SourceField sources[] = {
      {"response_format", R"({"type":"json_object"})"},
      {"response_format",
       R"({"type":"json_schema","json_schema":{"name":"city","description":"a \"city\"",)"
       R"("schema":{"type":"object", "properties":{"z":{"const":1.50},"a":{}}}}})"},
      {"response_format",
       R"({"type":"json_schema","json_schema":{"name":"n","strict":false,"schema":{}}})"},
      {"response_format",
       R"({"type":"structural_tag","format":{"type":"const_string","value":"x"}})"},
      {"response_format",
       R"({"type":"structural_tag","triggers":["<f"],"structures":[{"begin":"<f>","schema":{},)"
       R"("end":"</f>"}]})"},
      {"guided_json", R"("{\"type\":\"string\"}")"},
      {"guided_json", R"({"items":{"type":"integer","multipleOf":2}})"},
      {"guided_json", R"({"allOf":[{},{}]})"},
      {"guided_json", R"({"properties":{"a":{"type":"string","format":"email"}}})"},
      {"guided_json", R"({"type":"number","minimum":0.5})"},
      {"guided_regex", R"("[0-9]{4}-\\d\\d|\"x\"")"},
      {"guided_choice", R"(["yes","n.o\n"])"},
      {"guided_grammar", R"("root ::= a_b # c\n  | \"x\"\na_b ::= \"y\"")"},
      {"guided_grammar", R"("start: \"x\"")"},
      {"guided_json_object", "true"},
      {"structured_outputs", R"({"json":{},"whitespace_pattern":"[ ]"})"},
      {"structured_outputs", R"({"json":{},"disable_any_whitespace":true})"},
      {"structured_outputs", R"({"json_object":true,"disable_additional_properties":true})"},
      {"structured_outputs", R"({"regex":"a","disable_any_whitespace":true})"},
      {"json_schema", R"("{\"type\":\"object\"}")"},
      {"regex", R"("a.")"},
      {"ebnf", R"("root ::= \"\\\"\" [^\\n]")"},
      {"structural_tag", R"({"type":"structural_tag","format":{"type":"any_text"}})"},
  };
  std::string text;
  for (const SourceField& source : sources) {
    text += fmt::format("== {}: {}\n", source.name, source.json);
    const StructuredOutput output = read(source.name, source.json);
    for (const Dialect dialect : all_dialects()) {
      text += fmt::format("-- {}\n{}", kDialectNames[static_cast<size_t>(dialect)],
                          show(output, dialect));
    }
  }
  StructuredOutput reasoning = read("guided_choice", R"(["a"])");
  reasoning.require_reasoning = true;
  text += "== after reasoning\n";
  for (const Dialect dialect : all_dialects()) {
    text += fmt::format("-- {}\n{}", kDialectNames[static_cast<size_t>(dialect)],
                        show(reasoning, dialect));
  }

  const std::string path =
      std::string(STATOR_SOURCE_DIR) + "/src/stator/structured/testdata/lowered.txt";
  if (std::getenv("STATOR_UPDATE_GOLDENS") != nullptr) {
    std::ofstream(path) << text;
  }
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str());
}

TEST(Lower, SendsTheBackendHintOnlyWhereItMeansSomething) {
  StructuredOutput output = read("guided_regex", R"("a")");
  output.backend = "xgrammar";
  for (const Dialect dialect : all_dialects()) {
    const bool sent = show(output, dialect).contains("xgrammar");
    EXPECT_EQ(sent, dialect == Dialect::kVllmGuided);
  }
}

TEST(Lower, RefusesAsUnsupportedNamingEngineAndFeature) {
  const auto refused = lower(read("guided_regex", R"("a")"), Dialect::kOpenAi);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_EQ(refused.error().text,
            "an OpenAI-compatible server cannot enforce a regular expression: use a JSON schema, "
            "or a model on another engine");
  for (const Dialect dialect : all_dialects()) {
    EXPECT_FALSE(capabilities(dialect).name.empty());
  }
}

TEST(Encode, IsReadBack) {
  const auto same = [](const StructuredOutput& output) {
    const StructuredOutput again = read("structured_outputs", encode(output));
    EXPECT_EQ(encode(again), encode(output));
    EXPECT_EQ(again.kind(), output.kind());
  };
  same(read("guided_json", R"({ "type":"object", "x":1.0 })"));
  same(read("guided_json", R"({"allOf":[{},{}]})"));
  same(read("guided_regex", R"("\\d\"")"));
  same(read("guided_choice", R"(["a\n","b"])"));
  same(read("guided_grammar", R"("start: \"a\"")"));
  same(read("guided_json_object", "true"));
  same(read("structural_tag", R"({"type":"structural_tag","format":{"type":"any_text"}})"));
  same(read("structured_outputs",
            R"({"json":{},"whitespace_pattern":"[\n]","disable_any_whitespace":true,)"
            R"("disable_additional_properties":true})"));
}

/// Random schemas, most of which are accepted.
class SchemaMaker {
 public:
  explicit SchemaMaker(Random& random) : random_(random) {}

  // NOLINTNEXTLINE(misc-no-recursion): bounded by `depth`
  std::string make(int depth) {
    switch (random_.below(depth > 0 ? 12 : 6)) {
      case 0:
        return R"({"type":"string","maxLength":5,"description":"\u00e9 d"})";
      case 1:
        return R"({"type":"integer","minimum":-1,"maximum":10})";
      case 2:
        return R"({"enum":["a",1.50,null,[1, 2]]})";
      case 3:
        return R"({"type":"string","pattern":"^[a-z]{1,3}$"})";
      case 4:
        return R"({"type":["number","null"],"multipleOf":0.5})";
      case 5:
        return R"({"$ref":"#/$defs/d"})";
      case 6:
        return R"({"type":"array","minItems":1,"items":)" + make(depth - 1) + "}";
      case 7:
        return R"({"anyOf":[)" + make(depth - 1) + "," + make(depth - 1) + "]}";
      case 8:
        return R"({"allOf":[)" + make(depth - 1) + "," + make(depth - 1) + "]}";
      case 9:
        return R"({"not":)" + make(depth - 1) + "}";
      default:
        return R"({"type":"object","properties":{"a":)" + make(depth - 1) + R"(,"b\n":)" +
               make(depth - 1) + R"(},"required":["a"],"additionalProperties":false})";
    }
  }

  std::string document() {
    std::string body = make(4);
    body.pop_back();
    return body + R"(,"$defs":{"d":)" + make(1) + "}}";
  }

 private:
  Random& random_;
};

// What was accepted once is accepted in every form it is written in.
TEST(Lower, WritesOnlyWhatReadsBack) {
  Random random(20251121);
  SchemaMaker maker(random);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string schema = maker.document();
    const auto features = check_json_schema(schema);
    if (!features.has_value()) {
      continue;
    }
    ++accepted;
    StructuredOutput output;
    output.constraint = JsonSchema{.text = schema, .features = *features};
    EXPECT_EQ(
        verdict(check_json_schema(
            std::get<JsonSchema>(read("structured_outputs", encode(output)).constraint).text)),
        "ok")
        << schema;
    for (const Dialect dialect : all_dialects()) {
      const auto fields = lower(output, dialect);
      if (!fields.has_value()) {
        EXPECT_EQ(fields.error().code, Code::kUnsupported);
        continue;
      }
      for (const EngineField& field : *fields) {
        const auto tree = JsonTree::parse(field.json);
        ASSERT_TRUE(tree.has_value()) << field.json;
        if (tree->root().type == JsonType::kString) {
          EXPECT_EQ(tree->root().text, schema);
        } else {
          EXPECT_TRUE(field.json.contains(schema) || field.name == "reasoning_ended");
        }
      }
    }
    const std::vector<ToolFunction> tools = {{.name = "f\"", .parameters = schema, .strict = true}};
    const auto required =
        constrain_tools(tools, {.choice = ToolPolicy::Choice::kRequired}, nullptr);
    ASSERT_TRUE(required.has_value());
    EXPECT_EQ(verdict(check_json_schema(std::get<JsonSchema>((*required)->constraint).text)), "ok")
        << schema;
  }
  EXPECT_GT(accepted, 200);
}

}  // namespace
}  // namespace stator::structured
