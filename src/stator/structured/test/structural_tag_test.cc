// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/structural_tag.h"

#include <array>

#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::StartsWith;

constexpr std::string_view kStructures = R"({"type":"structural_tag","triggers":["<function="],
  "structures":[{"begin":"<function=f>","schema":{"additionalProperties":true,"minProperties":1},"end":"</function>"}]})";

constexpr std::string_view kFormat = R"({"type":"structural_tag","format":{"type":"sequence",
  "elements":[{"type":"const_string","value":"x"},{"type":"any_text"},
    {"type":"or","elements":[{"type":"regex","pattern":"\\d+"},
                             {"type":"grammar","grammar":"root ::= \"a\""}]},
    {"type":"triggered_tags","triggers":["<a"],"at_least_one":true,"stop_after_first":false,
     "tags":[{"type":"tag","begin":"<a>","end":["</a>","<b>"],
              "content":{"type":"json_schema","json_schema":true}}]},
    {"type":"tags_with_separator","separator":",","tags":[{"begin":"<a>","end":"</a>",
      "content":{"type":"qwen_xml_parameter","json_schema":{"type":"string","pattern":"a"}}}]}]}})";

TEST(StructuralTag, ReadsBothFormsAndCollectsFeatures) {
  const auto old_form = read_structural_tag(kStructures);
  const auto new_form = read_structural_tag(kFormat);

  ASSERT_TRUE(old_form.has_value()) << verdict(old_form);
  EXPECT_EQ(old_form->text, kStructures);
  EXPECT_FALSE(old_form->has_format);
  EXPECT_EQ(old_form->features, SchemaFeatures().with(SchemaFeature::kPropertyCount));
  ASSERT_TRUE(new_form.has_value()) << verdict(new_form);
  EXPECT_EQ(new_form->text, kFormat);
  EXPECT_TRUE(new_form->has_format);
  EXPECT_EQ(new_form->features, SchemaFeatures().with(SchemaFeature::kOpenPattern));
}

TEST(StructuralTag, ReadsEveryFormat) {
  for (
      const std::string_view format : {
          R"({"type":"any_text","excludes":["<a>"],"max_chars":9})",
          R"({"type":"any_text","excludes":[]})",
          R"({"type":"token","token":7})",
          R"({"type":"token","token":"<|x|>"})",
          R"({"type":"exclude_token","exclude_tokens":[1,"<|x|>"]})",
          R"({"type":"any_tokens"})",
          R"({"type":"optional","content":{"type":"any_text"}})",
          R"({"type":"plus","content":{"type":"any_text"}})",
          R"({"type":"star","content":{"type":"any_text"}})",
          R"({"type":"repeat","min":0,"max":-1,"content":{"type":"any_text"}})",
          R"({"type":"repeat","min":2,"max":2,"content":{"type":"any_text"}})",
          R"({"type":"dispatch","rules":[["<a>",{"type":"any_text"}]],"loop":false,"excludes":["b"]})",
          R"({"type":"token_dispatch","rules":[[5,{"type":"any_text"}]],"exclude_tokens":[6]})",
          R"({"type":"token_triggered_tags","trigger_tokens":[5],"tags":[{"type":"tag",
               "begin":{"type":"token","token":5},"content":{"type":"json_schema","json_schema":{}},
               "end":{"type":"token","token":"<|end|>"}}]})",
      }) {
    const std::string json = R"({"type":"structural_tag","format":)" + std::string(format) + "}";
    EXPECT_TRUE(read_structural_tag(json).has_value())
        << verdict(read_structural_tag(json)) << json;
  }
}

TEST(StructuralTag, NamesTheMemberThatIsWrong) {
  struct Case {
    std::string_view body;  // after "type":"structural_tag",
    std::string_view verdict;
  };
  constexpr auto kCases = std::to_array<Case>({
      {R"("a":1)", "triggers| is required and must be an array"},
      {R"("triggers":[],"structures":[])", "triggers| must not be empty"},
      {R"("triggers":[1],"structures":[])", "triggers[0]| must be a non-empty string"},
      {R"("triggers":["a",""],"structures":[])", "triggers[1]| must be a non-empty string"},
      {R"("triggers":["a"])", "structures| is required"},
      {R"("triggers":["a"],"structures":[])", "structures| must not be empty"},
      {R"("triggers":["a"],"structures":[1])", "structures[0]| must be an object, not a number"},
      {R"("triggers":["a"],"structures":[{}])", "structures[0].begin| is required"},
      {R"("triggers":["a"],"structures":[{"begin":"b"}])",
       "structures[0].begin| must begin with one of the triggers"},
      {R"("triggers":["a"],"structures":[{"begin":"a"}])", "structures[0].end| is required"},
      {R"("triggers":["a"],"structures":[{"begin":"a","end":"e"}])",
       "structures[0].schema| is required"},
      {R"("triggers":["a"],"structures":[{"begin":"a","end":"e","schema":{"not":{}}}])",
       "structures[0].schema| at #/not: not is not supported"},
      {R"("format":1)", "format| must be an object, not a number"},
      {R"("format":{})", "format.type| is required and must be a string"},
      {R"("format":{"type":"x"})", "format.type| must be one of const_string"},
      {R"("format":{"type":"const_string","value":1})", "format.value| must be a string, not a"},
      {R"("format":{"type":"json_schema"})", "format.json_schema| is required"},
      {R"("format":{"type":"json_schema","json_schema":false})",
       "format.json_schema| must be an object, not a boolean"},
      {R"("format":{"type":"regex","pattern":"("})", "format.pattern| at character 1"},
      {R"("format":{"type":"regex"})", "format.pattern| is required"},
      {R"("format":{"type":"grammar","grammar":"a"})", "format.grammar| at line 1, column 1"},
      {R"("format":{"type":"grammar"})", "format.grammar| is required"},
      {R"("format":{"type":"or","elements":[]})", "format.elements| must not be empty"},
      {R"("format":{"type":"or"})", "format.elements| is required"},
      {R"("format":{"type":"sequence","elements":[{"type":"any_text"},2]})",
       "format.elements[1]| must be an object"},
      {R"("format":{"type":"tag"})", "format.begin| is required"},
      {R"("format":{"type":"tag","begin":"a"})", "format.end| is required"},
      {R"("format":{"type":"tag","begin":"a","end":[]})", "format.end| must not be empty"},
      {R"("format":{"type":"tag","begin":"a","end":"b"})", "format.content| is required"},
      {R"("format":{"type":"tag","begin":"a","end":"b","content":{"type":"regex","pattern":""}})",
       "format.content.pattern| must not be empty"},
      {R"("format":{"type":"tags_with_separator","tags":[]})", "format.separator| is required"},
      {R"("format":{"type":"tags_with_separator","separator":"","tags":[]})",
       "format.tags| must not be empty"},
      {R"("format":{"type":"tags_with_separator","separator":"","tags":[1]})",
       "format.tags[0]| must be an object"},
      {R"("format":{"type":"tags_with_separator","separator":"","at_least_one":1,"tags":[]})",
       "format.at_least_one| must be a boolean"},
      {R"("format":{"type":"triggered_tags"})", "format.triggers| is required"},
      {R"("format":{"type":"any_text","excludes":"a"})", "format.excludes| must be an array"},
      {R"("format":{"type":"token"})", "format.token| is required"},
      {R"("format":{"type":"token","token":-1})", "format.token| must be a token"},
      {R"("format":{"type":"any_tokens","exclude_tokens":[1.5]})",
       "format.exclude_tokens[0]| must be a token"},
      {R"("format":{"type":"star"})", "format.content| is required"},
      {R"("format":{"type":"plus","content":{"type":"x"}})", "format.content.type| must be one of"},
      {R"("format":{"type":"repeat","max":1})", "format.min| is required"},
      {R"("format":{"type":"repeat","min":-1,"max":1})", "format.min| must not be negative"},
      {R"("format":{"type":"repeat","min":0.5,"max":1})", "format.min| must be a whole number"},
      {R"("format":{"type":"repeat","min":2,"max":1})", "format.max| must not be less than min"},
      {R"("format":{"type":"dispatch","rules":[]})", "format.rules| must not be empty"},
      {R"("format":{"type":"dispatch","rules":[["a"]]})",
       "format.rules[0]| must be a list of a pattern and a format"},
      {R"("format":{"type":"dispatch","rules":[["",{"type":"any_text"}]]})",
       "format.rules[0][0]| must be a non-empty string"},
      {R"("format":{"type":"token_dispatch","rules":[[{},{"type":"any_text"}]]})",
       "format.rules[0][0]| must be a token"},
      {R"("format":{"type":"dispatch","rules":[["a",{"type":"regex","pattern":"("}]]})",
       "format.rules[0][1].pattern| at character 1"},
      {R"("format":{"type":"token_triggered_tags","trigger_tokens":[]})",
       "format.trigger_tokens| must not be empty"},
      {R"("format":{"type":"tag","begin":{"type":"x"}})", "format.begin.type| must be \"token\""},
      {R"("format":{"type":"triggered_tags","triggers":["a"],"tags":[{"begin":"b"}]})",
       "format.tags[0].begin| must begin with one of the triggers"},
  });
  for (const Case& c : kCases) {
    const std::string json = R"({"type":"structural_tag",)" + std::string(c.body) + "}";
    EXPECT_THAT(verdict(read_structural_tag(json)), StartsWith(std::string(c.verdict))) << json;
  }
  EXPECT_EQ(verdict(read_structural_tag("[]")), "must be an object, not an array");
  EXPECT_EQ(verdict(read_structural_tag("{}")), "type| must be \"structural_tag\"");
  EXPECT_THAT(verdict(read_structural_tag("{")), StartsWith("is not valid JSON"));
}

TEST(StructuralTag, BoundsTheTriggers) {
  std::string triggers = R"("a")";
  for (int i = 0; i < 256; ++i) {
    triggers += R"(,"a")";
  }
  EXPECT_EQ(verdict(read_structural_tag(R"({"type":"structural_tag","triggers":[)" + triggers +
                                        R"(],"structures":[]})")),
            "triggers| has more than 256 strings");
}

}  // namespace
}  // namespace stator::structured
