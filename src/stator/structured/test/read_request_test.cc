// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/read_request.h"

#include <array>

#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::StartsWith;
using Fields = std::vector<SourceField>;

StructuredOutput output_of(const Fields& fields) {
  auto outcome = read_structured_output(fields);
  EXPECT_TRUE(outcome.has_value() && outcome->has_value()) << verdict(outcome);
  return outcome.has_value() && outcome->has_value() ? std::move(**outcome) : StructuredOutput();
}

TEST(ReadRequest, KnowsItsFields) {
  for (const std::string_view name :
       {"response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "guided_json_object", "guided_structural_tag", "guided_decoding_backend",
        "guided_whitespace_pattern", "structured_outputs", "json_schema", "regex", "ebnf",
        "structural_tag"}) {
    EXPECT_TRUE(is_source_field(name)) << name;
    EXPECT_FALSE(read_structured_output(Fields{{name, "null"}})->has_value()) << name;
  }
  EXPECT_FALSE(is_source_field("tools"));
  EXPECT_FALSE(read_structured_output({})->has_value());
}

TEST(ReadRequest, MakesOneFormOfEverySpelling) {
  struct Case {
    SourceField field;
    Kind kind;
    Origin origin;
    std::string_view named_field;
  };
  using enum Kind;
  using enum Origin;
  const Case cases[] = {
      {{"response_format", R"({"type":"json_object"})"},
       kJsonObject,
       kResponseFormat,
       "response_format"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"name":"n","schema":{}}})"},
       kJsonSchema,
       kResponseFormat,
       "response_format"},
      {{"response_format",
        R"({"type":"structural_tag","format":{"type":"const_string","value":"x"}})"},
       kStructuralTag,
       kResponseFormat,
       "response_format"},
      {{"guided_json", "{}"}, kJsonSchema, kGuided, "guided_json"},
      {{"guided_json", R"("{\"type\":\"object\"}")"}, kJsonSchema, kGuided, "guided_json"},
      {{"guided_regex", R"("a+")"}, kRegex, kGuided, "guided_regex"},
      {{"guided_choice", R"(["a","b"])"}, kChoice, kGuided, "guided_choice"},
      {{"guided_grammar", R"("root ::= \"a\"")"}, kGrammar, kGuided, "guided_grammar"},
      {{"guided_json_object", "true"}, kJsonObject, kGuided, "guided_json_object"},
      {{"guided_structural_tag",
        R"({"type":"structural_tag","format":{"type":"const_string","value":"x"}})"},
       kStructuralTag,
       kGuided,
       "guided_structural_tag"},
      {{"structured_outputs", R"({"json":{},"regex":null})"},
       kJsonSchema,
       kStructuredOutputs,
       "structured_outputs.json"},
      {{"structured_outputs", R"({"regex":"a"})"},
       kRegex,
       kStructuredOutputs,
       "structured_outputs.regex"},
      {{"structured_outputs", R"({"choice":["a"]})"},
       kChoice,
       kStructuredOutputs,
       "structured_outputs.choice"},
      {{"structured_outputs", R"({"grammar":"start: \"a\""})"},
       kGrammar,
       kStructuredOutputs,
       "structured_outputs.grammar"},
      {{"structured_outputs", R"({"json_object":true,"disable_fallback":true})"},
       kJsonObject,
       kStructuredOutputs,
       "structured_outputs.json_object"},
      {{"structured_outputs", R"({"structural_tag":"{\"type\":\"structural_tag\",\"format\":)"
                              R"({\"type\":\"const_string\",\"value\":\"x\"}}"})"},
       kStructuralTag,
       kStructuredOutputs,
       "structured_outputs.structural_tag"},
      {{"json_schema", "{}"}, kJsonSchema, kSglang, "json_schema"},
      {{"regex", R"("a")"}, kRegex, kSglang, "regex"},
      {{"ebnf", R"("root ::= \"a\"")"}, kGrammar, kSglang, "ebnf"},
      {{"structural_tag",
        R"({"type":"structural_tag","format":{"type":"const_string","value":"x"}})"},
       kStructuralTag,
       kSglang,
       "structural_tag"},
  };
  for (const Case& c : cases) {
    const StructuredOutput output = output_of({c.field});
    EXPECT_EQ(output.kind(), c.kind) << c.field.json;
    EXPECT_EQ(output.origin, c.origin) << c.field.json;
    EXPECT_EQ(output.field, c.named_field);
  }
}

TEST(ReadRequest, KeepsTheClientsTexts) {
  const StructuredOutput schema = output_of(
      {{"response_format",
        R"({"type":"json_schema","json_schema":{"name":"n","description":"d","strict":false,)"
        R"("schema":{ "z":1.50, "a":[30000000000000000000000] },"more":1}})"}});
  const auto& read = std::get<JsonSchema>(schema.constraint);
  EXPECT_EQ(read.text, R"({ "z":1.50, "a":[30000000000000000000000] })");
  EXPECT_EQ(read.name, "n");
  EXPECT_EQ(read.description, "d");
  EXPECT_EQ(read.strict, false);

  EXPECT_EQ(std::get<Regex>(output_of({{"regex", R"("\\d\u00e9")"}}).constraint).pattern, "\\dé");
  EXPECT_EQ(
      std::get<Grammar>(output_of({{"guided_grammar", R"("start: \"a\"")"}}).constraint).syntax,
      Grammar::Syntax::kLark);
  EXPECT_EQ(std::get<Choice>(output_of({{"guided_choice", R"(["a\n","a\n"])"}}).constraint).options,
            (std::vector<std::string>{"a\n", "a\n"}));
}

TEST(ReadRequest, ReadsOptions) {
  const StructuredOutput guided = output_of({{"guided_whitespace_pattern", R"("[ ]?")"},
                                             {"guided_json", "{}"},
                                             {"guided_decoding_backend", R"("xgrammar")"}});
  EXPECT_EQ(guided.whitespace_pattern, "[ ]?");
  EXPECT_EQ(guided.backend, "xgrammar");

  const StructuredOutput current =
      output_of({{"structured_outputs", R"({"json":{},"whitespace_pattern":"[\n ]*",)"
                                        R"("disable_any_whitespace":true,)"
                                        R"("disable_additional_properties":true})"}});
  EXPECT_EQ(current.whitespace_pattern, "[\n ]*");
  EXPECT_TRUE(current.disable_any_whitespace && current.disable_additional_properties);
  EXPECT_FALSE(current.require_reasoning);
}

TEST(ReadRequest, LeavesTextFree) {
  EXPECT_FALSE(
      read_structured_output(Fields{{"response_format", R"({"type":"text"})"}})->has_value());
  EXPECT_FALSE(read_structured_output(Fields{{"guided_json_object", "false"}})->has_value());
  EXPECT_FALSE(read_structured_output(Fields{{"guided_decoding_backend", R"("x")"}})->has_value());
}

TEST(ReadRequest, TakesTheLastOfAFieldGivenTwice) {
  const StructuredOutput last = output_of({{"regex", R"("a")"}, {"regex", R"("b")"}});
  EXPECT_EQ(std::get<Regex>(last.constraint).pattern, "b");
  EXPECT_FALSE(read_structured_output(Fields{{"regex", R"("(")"}, {"regex", "null"}})->has_value());
}

TEST(ReadRequest, RefusesTwoConstraintsNamingBoth) {
  struct Case {
    Fields fields;
    std::string_view verdict;
  };
  const Case cases[] = {
      {{{"guided_json", "{}"}, {"response_format", R"({"type":"json_object"})"}},
       "guided_json| cannot be combined with response_format: keep one of them"},
      {{{"guided_regex", R"("a")"}, {"guided_json", "{}"}},
       "guided_regex| cannot be combined with guided_json: keep one of them"},
      {{{"structured_outputs", R"({"json":{},"choice":["a"]})"}},
       "structured_outputs.choice| cannot be combined with structured_outputs.json"},
      {{{"ebnf", R"("root ::= \"a\"")"}, {"structured_outputs", R"({"regex":"a"})"}},
       "ebnf| cannot be combined with structured_outputs.regex"},
      {{{"guided_json_object", "true"}, {"guided_choice", R"(["a"])"}},
       "guided_json_object| cannot be combined with guided_choice"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(verdict(read_structured_output(c.fields)), StartsWith(std::string(c.verdict)));
  }
}

TEST(ReadRequest, RefusesWithThePathOfTheField) {
  struct Case {
    SourceField field;
    std::string_view verdict;
  };
  const std::string long_regex = "\"" + std::string(kRegexBytesMax + 1, 'a') + "\"";
  const std::string long_space = "\"" + std::string(kWhitespacePatternBytesMax + 1, 'a') + "\"";
  const Case cases[] = {
      {{"response_format", "1"}, "response_format| must be an object, not a number"},
      {{"response_format", "{}"}, "response_format.type| must be one of text, json_object"},
      {{"response_format", R"({"type":"xml"})"}, "response_format.type| must be one of text"},
      {{"response_format", R"({"type":"text","type":"text"})"},
       "response_format| at #: the key \"type\" appears twice"},
      {{"response_format", R"({"type":"json_schema"})"},
       "response_format.json_schema| is required when"},
      {{"response_format", R"({"type":"json_schema","json_schema":null})"},
       "response_format.json_schema| is required when"},
      {{"response_format", R"({"type":"json_schema","json_schema":1})"},
       "response_format.json_schema| must be an object, not a number"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"schema":{}}})"},
       "response_format.json_schema.name| must not be empty"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"name":1,"schema":{}}})"},
       "response_format.json_schema.name| must be a string"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"name":"n"}})"},
       "response_format.json_schema.schema| is required and must be an object"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"name":"n","schema":"{}"}})"},
       "response_format.json_schema.schema| must be an object, not a string"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"name":"n","strict":1}})"},
       "response_format.json_schema.strict| must be a boolean"},
      {{"response_format", R"({"type":"json_schema","json_schema":{"name":"n","description":1}})"},
       "response_format.json_schema.description| must be a string"},
      {{"response_format",
        R"({"type":"json_schema","json_schema":{"name":"n","schema":{"not":{}}}})"},
       "response_format.json_schema.schema| at #/not: not is not supported"},
      {{"response_format", R"({"type":"structural_tag"})"},
       "response_format.triggers| is required"},
      {{"guided_json", "1"}, "guided_json| must be an object or a string, not a number"},
      {{"guided_json", R"("{")"}, "guided_json| is not valid JSON"},
      {{"guided_json", R"("1")"}, "guided_json| must be an object, not a number"},
      {{"guided_regex", "1"}, "guided_regex| must be a string, not a number"},
      {{"guided_regex", R"(" ")"}, "guided_regex| must not be blank"},
      {{"guided_regex", R"("a(")"}, "guided_regex| at character 2: `(` without `)`"},
      {{"guided_regex", long_regex}, "guided_regex| is longer than 65536 bytes"},
      {{"guided_choice", "1"}, "guided_choice| must be an array of strings, not a number"},
      {{"guided_choice", "[]"}, "guided_choice| must not be empty"},
      {{"guided_choice", R"(["a",1])"}, "guided_choice[1]| must be a string, not a number"},
      {{"guided_choice", R"([""])"}, "guided_choice[0]| must not be empty"},
      {{"guided_grammar", R"("x ::= y")"}, "guided_grammar| at line 1, column 7: y is not defined"},
      {{"guided_json_object", "1"}, "guided_json_object| must be a boolean, not a number"},
      {{"guided_decoding_backend", "1"}, "guided_decoding_backend| must be a string"},
      {{"guided_whitespace_pattern", R"("(")"}, "guided_whitespace_pattern| at character 1"},
      {{"guided_whitespace_pattern", long_space},
       "guided_whitespace_pattern| is longer than 256 bytes"},
      {{"structured_outputs", "1"}, "structured_outputs| must be an object, not a number"},
      {{"structured_outputs", "{}"}, "structured_outputs| must have one of json, regex"},
      {{"structured_outputs", R"({"jsn":{}})"}, "structured_outputs.jsn| is unknown"},
      {{"structured_outputs", R"({"json":{},"disable_any_whitespace":1})"},
       "structured_outputs.disable_any_whitespace| must be a boolean"},
      {{"structured_outputs", R"({"json":{},"disable_additional_properties":1})"},
       "structured_outputs.disable_additional_properties| must be a boolean"},
      {{"structured_outputs", R"({"json":{},"disable_fallback":1})"},
       "structured_outputs.disable_fallback| must be a boolean"},
      {{"structured_outputs", R"({"structural_tag":{}})"},
       "structured_outputs.structural_tag.type| must be"},
      {{"structured_outputs", R"({"json":{"properties":{"a":{"$dynamicRef":"#a"}}}})"},
       "structured_outputs.json| at #/properties/a/$dynamicRef: $dynamicRef is"},
      {{"ebnf", R"("start: \"a\"")"}, "ebnf| at line 1, column 6: expected a name"},
      {{"regex", "{"}, "regex| is not valid JSON"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(verdict(read_structured_output(Fields{c.field})),
                StartsWith(std::string(c.verdict)))
        << c.field.name;
  }
}

TEST(ReadRequest, BoundsChoices) {
  std::string many = R"(["a")";
  for (size_t i = 1; i < kChoicesMax; ++i) {
    many += R"(,"a")";
  }
  EXPECT_EQ(verdict(read_structured_output(Fields{{"guided_choice", many + "]"}})), "ok");
  const std::string too_many = many + R"(,"a"])";
  EXPECT_THAT(verdict(read_structured_output(Fields{{"guided_choice", too_many}})),
              StartsWith("guided_choice| must have at most 4096 strings"));
  const std::string too_long = "[\"" + std::string(kChoiceBytesMax + 1, 'a') + "\"]";
  EXPECT_THAT(verdict(read_structured_output(Fields{{"guided_choice", too_long}})),
              StartsWith("guided_choice| must have at most 4096 strings and 1048576 bytes"));
}

TEST(Refusal, BecomesAnErrorThatNamesTheField) {
  Refusal refusal = refuse_at("#/a", "is wrong");
  EXPECT_EQ(std::move(refusal).in_field("[0]").in_field("x").to_error().to_string(),
            "invalid_argument: x[0] at #/a: is wrong");
  EXPECT_EQ(refuse("is wrong").to_error().message(), "is wrong");
}

}  // namespace
}  // namespace stator::structured
