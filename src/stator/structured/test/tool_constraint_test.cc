// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/tool_constraint.h"

#include "stator/structured/json_schema.h"
#include "stator/structured/structural_tag.h"
#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::StartsWith;
using enum ToolPolicy::Choice;

const std::vector<ToolFunction> kTools = {
    {.name = "get", .parameters = R"({"type":"object","properties":{"n":{"type":"integer"}}})"},
    {.name = "tree",
     .parameters = R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object"}}})",
     .strict = true},
};

const ToolCallFormat kHermes = {.begin_before_name = "<tool_call>\n{\"name\": \"",
                                .begin_after_name = "\", \"arguments\": ",
                                .end = "}\n</tool_call>",
                                .trigger = "<tool_call>"};
const ToolCallFormat kKimi = {.section_begin = "<|tool_calls_section_begin|>",
                              .section_end = "<|tool_calls_section_end|>",
                              .begin_before_name = "<|tool_call_begin|>functions.",
                              .begin_after_name = ":",
                              .arguments_begin = "<|tool_call_argument_begin|>",
                              .end = "<|tool_call_end|>"};

std::optional<StructuredOutput> constrain(const ToolPolicy& policy,
                                          const ToolCallFormat* format = nullptr,
                                          const std::vector<ToolFunction>& tools = kTools) {
  auto outcome = constrain_tools(tools, policy, format);
  EXPECT_TRUE(outcome.has_value()) << verdict(outcome);
  return outcome.has_value() ? std::move(*outcome) : std::nullopt;
}

std::string tag_of(const ToolPolicy& policy, const ToolCallFormat& format) {
  const auto output = constrain(policy, &format);
  const auto* tag = output ? std::get_if<StructuralTag>(&output->constraint) : nullptr;
  if (tag == nullptr) {
    return "no tag";
  }
  EXPECT_EQ(verdict(read_structural_tag(tag->text)), "ok") << tag->text;
  EXPECT_TRUE(tag->has_format);
  return tag->text;
}

TEST(ReadTools, TakesNamesParametersAndStrictness) {
  const auto tools = read_tools(
      R"([{"type":"function","function":{"name":"a","parameters":{ "z":1.0 },"strict":true}},)"
      R"({"type":"function","function":{"name":"b","description":"d"}},)"
      R"({"type":"function","function":{"name":"c","parameters":{},"strict":null}}])");

  ASSERT_TRUE(tools.has_value()) << verdict(tools);
  ASSERT_EQ(tools->size(), 3U);
  EXPECT_EQ((*tools)[0].name, "a");
  EXPECT_EQ((*tools)[0].parameters, R"({ "z":1.0 })");
  EXPECT_TRUE((*tools)[0].strict);
  EXPECT_EQ((*tools)[1].parameters, R"({"type":"object","properties":{}})");
  EXPECT_EQ((*tools)[2].parameters, R"({"type":"object","properties":{}})");
  EXPECT_FALSE((*tools)[2].strict);
}

TEST(ReadTools, RefusesWithThePath) {
  EXPECT_EQ(verdict(read_tools("{}")), "tools| must be an array, not an object");
  EXPECT_THAT(verdict(read_tools("[")), StartsWith("tools| is not valid JSON"));
  EXPECT_THAT(verdict(read_tools("[{}]")), StartsWith("tools[0].function| is required"));
  EXPECT_THAT(verdict(read_tools("[1]")), StartsWith("tools[0].function| is required"));
  EXPECT_THAT(verdict(read_tools(R"([{"function":{}}])")),
              StartsWith("tools[0].function.name| is required"));
  EXPECT_THAT(verdict(read_tools(R"([{"function":{"name":1}}])")),
              StartsWith("tools[0].function.name| is required"));
  EXPECT_EQ(verdict(read_tools(R"([{"function":{"name":"a","parameters":"{}"}}])")),
            "tools[0].function.parameters| must be an object, not a string");
  EXPECT_EQ(verdict(read_tools(R"([{"function":{"name":"a","strict":1}}])")),
            "tools[0].function.strict| must be a boolean, not a number");
}

TEST(ToolConstraint, RequiresAnArrayOfCallsWithoutAFamily) {
  const auto output = constrain({.choice = kRequired});

  ASSERT_TRUE(output.has_value());
  EXPECT_EQ(output->origin, Origin::kToolChoice);
  EXPECT_EQ(output->field, "tool_choice");
  const std::string& schema = std::get<JsonSchema>(output->constraint).text;
  EXPECT_EQ(
      schema,
      R"({"type":"array","minItems":1,"items":{"anyOf":[)"
      R"({"type":"object","properties":{"name":{"const":"get"},"parameters":)"
      R"({"type":"object","properties":{"n":{"type":"integer"}}}},)"
      R"("required":["name","parameters"],"additionalProperties":false},)"
      R"({"type":"object","properties":{"name":{"const":"tree"},"parameters":)"
      R"({"$ref":"#/$defs/tool_1"}},)"
      R"("required":["name","parameters"],"additionalProperties":false}]},)"
      R"("$defs":{"tool_1":{"$ref":"#/$defs/tool_1/$defs/t","$defs":{"t":{"type":"object"}}}}})");
  EXPECT_EQ(verdict(check_json_schema(schema)), "ok");

  const auto single = constrain({.choice = kRequired, .parallel = false});
  EXPECT_THAT(std::get<JsonSchema>(single->constraint).text,
              StartsWith(R"({"type":"array","minItems":1,"maxItems":1,"items")"));
}

TEST(ToolConstraint, NamedIsTheArgumentsAlone) {
  const auto output = constrain({.choice = kNamed, .name = "get"});

  ASSERT_TRUE(output.has_value());
  const auto& schema = std::get<JsonSchema>(output->constraint);
  EXPECT_EQ(schema.text, kTools[0].parameters);
  EXPECT_EQ(schema.name, "get");
}

TEST(ToolConstraint, LeavesTheModelFreeUnlessSomethingIsStrict) {
  const std::vector<ToolFunction> loose = {kTools[0]};
  EXPECT_FALSE(constrain({.choice = kAuto}).has_value());
  EXPECT_FALSE(constrain({.choice = kAuto, .parallel = false}).has_value());
  EXPECT_FALSE(constrain({.choice = kAuto}, &kHermes, loose).has_value());
  EXPECT_FALSE(constrain({.choice = kAuto, .parallel = false}, &kHermes, {}).has_value());
  EXPECT_TRUE(constrain({.choice = kAuto, .parallel = false}, &kHermes, loose).has_value());
  const auto strict = constrain({.choice = kAuto}, &kHermes);
  ASSERT_TRUE(strict.has_value());
  EXPECT_EQ(strict->origin, Origin::kStrictTools);
}

TEST(ToolConstraint, SpeaksTheFamilysTags) {
  EXPECT_EQ(
      tag_of({.choice = kAuto}, kHermes),
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<tool_call>"],)"
      R"("tags":[{"type":"tag","begin":"<tool_call>\n{\"name\": \"get\", \"arguments\": ",)"
      R"("content":{"type":"json_schema","json_schema":{"type":"object"}},"end":"}\n</tool_call>"},)"
      R"({"type":"tag","begin":"<tool_call>\n{\"name\": \"tree\", \"arguments\": ",)"
      R"("content":{"type":"json_schema","json_schema":{"$ref":"#/$defs/t","$defs":{"t":{"type":"object"}}}},)"
      R"("end":"}\n</tool_call>"}],"at_least_one":false,"stop_after_first":false}})");
  EXPECT_EQ(
      tag_of({.choice = kNamed, .name = "get"}, kHermes),
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<tool_call>"],)"
      R"("tags":[{"type":"tag","begin":"<tool_call>\n{\"name\": \"get\", \"arguments\": ",)"
      R"("content":{"type":"json_schema","json_schema":{"type":"object"}},"end":"}\n</tool_call>"}],)"
      R"("at_least_one":true,"stop_after_first":true}})");
}

TEST(ToolConstraint, PutsCallsIntoTheFamilysSection) {
  constexpr std::string_view kCall =
      R"({"type":"tag","begin":"<|tool_call_begin|>functions.get:","content":{"type":"sequence",)"
      R"("elements":[{"type":"regex","pattern":"\\d+"},{"type":"const_string",)"
      R"("value":"<|tool_call_argument_begin|>"},{"type":"json_schema","json_schema":)"
      R"({"type":"object"}}]},"end":"<|tool_call_end|>"})";
  const std::string section =
      R"({"type":"tag","begin":"<|tool_calls_section_begin|>","content":{"type":)"
      R"("tags_with_separator","tags":[)" +
      std::string(kCall) +
      R"(],"separator":"","at_least_one":true,"stop_after_first":true},)"
      R"("end":"<|tool_calls_section_end|>"})";
  const std::vector<ToolFunction> one = {kTools[0]};

  const auto required = constrain({.choice = kRequired, .parallel = false}, &kKimi, one);
  const auto automatic = constrain({.choice = kAuto, .parallel = false}, &kKimi, one);

  EXPECT_EQ(std::get<StructuralTag>(required->constraint).text,
            R"({"type":"structural_tag","format":)" + section + "}");
  EXPECT_EQ(std::get<StructuralTag>(automatic->constraint).text,
            R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":)"
            R"(["<|tool_calls_section_begin|>"],"tags":[)" +
                section + R"(],"at_least_one":false,"stop_after_first":true}})");
  EXPECT_THAT(tag_of({.choice = kRequired}, kKimi), testing::HasSubstr("section"));
}

TEST(ToolConstraint, SpellsArgumentsAsTheFamilyDoes) {
  using enum ToolCallFormat::Arguments;
  ToolCallFormat format = {.begin_before_name = "<function=", .begin_after_name = ">\n"};
  for (const auto& [arguments, style] :
       {std::pair(kQwenXml, "qwen_xml"), std::pair(kDeepseekXml, "deepseek_xml"),
        std::pair(kMinimaxXml, "minimax_xml"), std::pair(kGlmXml, "glm_xml")}) {
    format.arguments = arguments;
    const std::string tag = tag_of({.choice = kRequired}, format);
    EXPECT_THAT(tag, testing::HasSubstr(std::string(",\"style\":\"") + style + "\"}"));
    EXPECT_THAT(tag, testing::HasSubstr(R"("triggers":["<function="])"));
  }
}

TEST(ToolConstraint, RefusesWhatCannotBeKept) {
  EXPECT_EQ(verdict(constrain_tools({}, {.choice = kRequired}, nullptr)),
            "tool_choice| required needs non-empty tools");
  EXPECT_EQ(verdict(constrain_tools(kTools, {.choice = kNamed, .name = "x"}, &kHermes)),
            "tool_choice| names a function that is not in tools: x");
  const std::vector<ToolFunction> hard = {
      kTools[0], {.name = "b", .parameters = R"({"not":{}})", .strict = true}};
  constexpr std::string_view kPlace =
      "tools[1].function.parameters| at #/not: not is not supported";
  EXPECT_THAT(verdict(constrain_tools(hard, {.choice = kRequired}, nullptr)),
              StartsWith(std::string(kPlace)));
  EXPECT_THAT(verdict(constrain_tools(hard, {.choice = kNamed, .name = "b"}, nullptr)),
              StartsWith(std::string(kPlace)));
  EXPECT_THAT(verdict(constrain_tools(hard, {.choice = kAuto}, &kHermes)),
              StartsWith(std::string(kPlace)));
  EXPECT_EQ(verdict(constrain_tools(hard, {.choice = kAuto}, nullptr)), "ok");
}

TEST(JoinConstraints, LetsFieldsWinOverAnAutomaticChoiceOnly) {
  const auto from_field = [] {
    return std::optional(StructuredOutput{
        .constraint = Regex{"a"}, .field = "guided_regex", .origin = Origin::kGuided});
  };
  const auto from_tools = [](Origin origin) {
    return std::optional(
        StructuredOutput{.constraint = JsonObject{}, .field = "tools", .origin = origin});
  };

  EXPECT_FALSE(join_constraints(std::nullopt, std::nullopt)->has_value());
  EXPECT_EQ((*join_constraints(std::nullopt, from_tools(Origin::kToolChoice)))->kind(),
            Kind::kJsonObject);
  EXPECT_EQ((*join_constraints(from_field(), std::nullopt))->kind(), Kind::kRegex);
  EXPECT_EQ((*join_constraints(from_field(), from_tools(Origin::kStrictTools)))->kind(),
            Kind::kRegex);
  EXPECT_EQ(verdict(join_constraints(from_field(), from_tools(Origin::kToolChoice))),
            "tool_choice| cannot require a call together with guided_regex: keep one of them");
}

TEST(JoinConstraints, ARequiredCallLeavesNothingForResponseFormat) {
  const StructuredOutput format{
      .constraint = Regex{"a"}, .field = "response_format", .origin = Origin::kResponseFormat};
  const StructuredOutput call{
      .constraint = JsonObject{}, .field = "tool_choice", .origin = Origin::kToolChoice};

  EXPECT_EQ((*join_constraints(format, call))->field, "tool_choice");
  EXPECT_EQ((*join_constraints(format, std::nullopt))->field, "response_format");
}

}  // namespace
}  // namespace stator::structured
