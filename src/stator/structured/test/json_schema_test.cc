// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/json_schema.h"

#include <fmt/format.h>

#include <array>

#include "stator/structured/detail/json_tree.h"
#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::HasSubstr;

TEST(JsonSchema, AcceptsWhatDecodersEnforce) {
  for (const std::string_view schema : {
           R"({})",
           R"({"type":"object"})",
           R"({"type":["string","null"]})",
           R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","title":"t",
               "description":"d","$comment":"c","default":1,"examples":[1],"deprecated":true,
               "readOnly":true,"writeOnly":false,"x-mine":{"not":1},"discriminator":{}})",
           R"({"enum":[1,"a",null,{"not":{}}]})",
           R"({"const":{"if":1}})",
           R"({"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":5},
               "not":{"type":"string"}},"required":["a"],"additionalProperties":false})",
           R"({"type":"object","additionalProperties":{"type":"number"}})",
           R"({"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1})",
           R"({"type":"array","prefixItems":[{"type":"string"},true],"items":false})",
           R"({"type":"string","pattern":"^[a-z]+$"})",
           R"({"anyOf":[{"type":"string"},{"type":"null"}]})",
           R"({"oneOf":[{"const":1},{"const":2}]})",
           R"({"allOf":[{"type":"string"}]})",
           R"({"type":"string","format":"date-time"})",
           R"({"type":"integer","format":"int64"})",
           R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{}})",
           R"({"propertyNames":{}})",
           R"({"propertyNames":true})",
           R"({"nullable":false,"uniqueItems":false,"unevaluatedProperties":true})",
           R"({"exclusiveMinimum":1.5,"maximum":1e300,"type":"number"})",
           R"({"minimum":-2.0,"maximum":1e3,"type":["integer","null"]})",
           R"({"type":"string","enum":["a","b"]})",
           R"({"type":["number","null"],"enum":[1,1.5,null]})",
           R"({"type":"integer","const":1.0})",
           R"({"type":"object","oneOf":[{"type":"object"},{"$ref":"#/$defs/a"}],
               "$defs":{"a":{"properties":{}}}})",
           R"({"type":"number","anyOf":[{"const":1},{"enum":[2,3]},{"type":"integer"}]})",
           R"({"type":"string","minLength":1,"maxLength":2,"format":"password"})",
           R"({"format":"int32"})",
           R"({"items":{},"maxItems":3})",
           R"({"additionalProperties":true,"maxProperties":3})",
           R"({"type":"object","properties":{},"required":[]})",
           R"({"type":"object","patternProperties":{"^a":{}},"additionalProperties":false,
               "properties":{},"minProperties":1})",
           R"({"properties":{"a":{},"b":{}},"required":["a"],"minProperties":2,"maxProperties":2})",
           R"({"prefixItems":[{},{}],"items":false,"minItems":2})",
       }) {
    EXPECT_EQ(verdict(check_json_schema(schema)), "ok") << schema;
  }
}

struct Refused {
  std::string_view schema;
  std::string_view verdict;  // beginning
};

class JsonSchemaRefuses : public testing::TestWithParam<Refused> {};

TEST_P(JsonSchemaRefuses, WithThePlaceAndARemedy) {
  EXPECT_THAT(verdict(check_json_schema(GetParam().schema)),
              testing::StartsWith(std::string(GetParam().verdict)))
      << GetParam().schema;
}

constexpr Refused kUnsupported[] = {
    {R"({"properties":{"a":{"not":{}}}})",
     "at #/properties/a/not: not is not supported: say what is allowed"},
    {R"({"maxContains":1})", "at #/maxContains: maxContains is not supported"},
    {R"({"propertyNames":false})", "at #/propertyNames: false matches nothing"},
    {R"({"dependencies":1})", "at #/dependencies: must be an object"},
    {R"({"allOf":[{"properties":{"a":{}},"patternProperties":{"b":{}}}],
         "unevaluatedProperties":false})",
     "at #/unevaluatedProperties: unevaluatedProperties is not supported: use"},
    {R"({"$dynamicRef":"#a"})", "at #/$dynamicRef: $dynamicRef is not supported: use $ref"},
    {R"({"$recursiveRef":"#"})", "at #/$recursiveRef: $recursiveRef is not supported"},
    {R"({"type":"string","pattern":"(?=a"})",
     "at #/pattern: the pattern at character 1: look-ahead and look-behind are not supported"},
    {R"({"type":"object","patternProperties":{"(":{}}})",
     "at #/patternProperties/(: the pattern at character 1"},
};
INSTANTIATE_TEST_SUITE_P(Unsupported, JsonSchemaRefuses, testing::ValuesIn(kUnsupported));

constexpr Refused kWrong[] = {
    {"[]", "must be an object, not an array"},
    {"true", "must be an object, not a boolean"},
    {"{", "is not valid JSON"},
    {R"({"type":"strin"})", "at #/type: must be object, array, string"},
    {R"({"type":1})", "at #/type: must be object, array, string"},
    {R"({"type":[]})", "at #/type: must name at least one type"},
    {R"({"type":["string",1]})", "at #/type/1: must be object, array, string"},
    {R"({"enum":[]})", "at #/enum: must not be empty"},
    {R"({"enum":1})", "at #/enum: must be an array, not a number"},
    {R"({"properties":[]})", "at #/properties: must be an object, not an array"},
    {R"({"properties":{"a/b":1}})", "at #/properties/a~1b: must be a schema"},
    {R"({"additionalProperties":1})", "at #/additionalProperties: must be a schema"},
    {R"({"required":"a"})", "at #/required: must be an array of strings, not a string"},
    {R"({"required":[1]})", "at #/required/0: must be a string, not a number"},
    {R"({"anyOf":[]})", "at #/anyOf: must not be empty"},
    {R"({"anyOf":{}})", "at #/anyOf: must be an array of schemas, not an object"},
    {R"({"oneOf":[{"type":"x"}]})", "at #/oneOf/0/type: must be object"},
    {R"({"allOf":[false]})", "at #/allOf/0: false matches nothing"},
    {R"({"minLength":-1})", "at #/minLength: must be a whole number from 0"},
    {R"({"maxLength":1.5})", "at #/maxLength: must be a whole number from 0"},
    {R"({"maxItems":2147483648})", "at #/maxItems: must be a whole number from 0 to 2147483647"},
    {R"({"minProperties":"1"})", "at #/minProperties: must be a whole number"},
    {R"({"minimum":"1"})", "at #/minimum: must be a number, not a string"},
    {R"({"multipleOf":0})", "at #/multipleOf: must be a number above 0"},
    {R"({"pattern":1})", "at #/pattern: must be a string, not a number"},
    {R"({"format":1})", "at #/format: must be a string, not a number"},
    {R"({"$ref":1})", "at #/$ref: must be a string, not a number"},
    {R"({"$ref":"other.json#/a"})", "at #/$ref: only references into the same document"},
    {R"({"$ref":"#anchor"})", "at #/$ref: only references into the same document"},
    {R"({"$ref":"#/$defs/a"})", "at #/$ref: refers to nothing: define it under $defs"},
    {R"({"$ref":"#/title","title":"x"})", "at #/$ref: does not refer to a schema"},
    {R"({"type":"object","allOf":[{"$ref":"http://localhost/other.json"}]})",
     "at #/allOf/0/$ref: only references into the same document"},
    {R"({"type":"object","anyOf":[{"$ref":"#/$defs/a"}]})", "at #/anyOf/0/$ref: refers to nothing"},
    {R"({"type":"object","oneOf":[{"$ref":""}]})", "at #/oneOf/0/$ref: only references into"},
    {R"({"type":"object","oneOf":[{"$ref":7}]})", "at #/oneOf/0/$ref: must be a string"},
    {R"({"properties":{"a":{"$id":"http://x/a","$ref":"#/$defs/b"}},"$defs":{"b":{}}})",
     "at #/properties/a/$ref: is relative to the $id of a part"},
};
INSTANTIATE_TEST_SUITE_P(WrongValues, JsonSchemaRefuses, testing::ValuesIn(kWrong));

constexpr Refused kEmpty[] = {
    {R"({"type":"string","minLength":3,"maxLength":2})",
     "at #/maxLength: no value fits minLength 3 and maxLength 2"},
    {R"({"items":{},"minItems":3,"maxItems":2})", "at #/maxItems: no value fits"},
    {R"({"type":"object","minProperties":3,"maxProperties":2})",
     "at #/maxProperties: no value fits"},
    {R"({"type":"number","minimum":3,"maximum":2.5})",
     "at #/maximum: no value fits minimum 3 and maximum 2.5"},
    {R"({"type":"integer","exclusiveMinimum":3,"maximum":3})", "at #/maximum: no value fits"},
    {R"({"type":"integer","minimum":3,"exclusiveMaximum":3})",
     "at #/exclusiveMaximum: no value fits"},
    {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":3})",
     "at #/exclusiveMaximum: no value fits"},
    {R"({"type":"object","minProperties":1})",
     "at #/minProperties: is more than there are properties"},
    {R"({"properties":{"a":{}},"minProperties":2,"additionalProperties":false})",
     "at #/minProperties: is more than there are properties"},
    {R"({"properties":{"a":{},"b":{}},"required":["a","b"],"maxProperties":1})",
     "at #/maxProperties: is less than required has names"},
    {R"({"prefixItems":[{}],"items":false,"minItems":2})",
     "at #/minItems: is more than prefixItems has"},
    {R"({"type":"string","const":1})", "at #/const: does not have the type beside it"},
};
// Found by asking a decoder: it takes these schemas and lets other values through.
constexpr Refused kIneffective[] = {
    {R"({"required":["b"],"properties":{"a":{}},"additionalProperties":false})",
     "at #/required/0: \"b\" is not among properties, so that it is not enforced"},
    {R"({"type":"integer","minimum":1.5})", "at #/minimum: must be a whole number"},
    {R"({"anyOf":[{}],"oneOf":[{}]})",
     "at #/oneOf: oneOf beside anyOf is not enforced: move it into each member"},
    {R"({"type":"object","oneOf":[{"required":["a"]}],"properties":{}})",
     "at #/properties: properties beside oneOf is not enforced: move it into each member"},
    {R"({"type":"object","oneOf":[{"type":"object"}],"properties":{}})",
     "at #/properties: properties beside oneOf is not enforced: move it into each member"},
};
INSTANTIATE_TEST_SUITE_P(WhatHasNoEffect, JsonSchemaRefuses, testing::ValuesIn(kIneffective));

// The same, but we look at all keywords ourselves.
TEST(JsonSchema, TellsWhatDecodersLookAtAlone) {
  struct Case {
    std::string_view schema;
    std::string_view place;
  };
  for (const auto& [schema, place] : std::vector<Case>{
           {R"({"type":"object","required":["b"]})", "#/required/0"},
           {R"({"type":"string","minLength":1,"pattern":"a"})", "#/pattern"},
           {R"({"type":"string","format":"date","pattern":"a"})", "#/pattern"},
           {R"({"minLength":1})", "#/minLength"},
           {R"({"pattern":"a"})", "#/pattern"},
           {R"({"format":"date"})", "#/format"},
           {R"({"minimum":1})", "#/minimum"},
           {R"({"multipleOf":2})", "#/multipleOf"},
           {R"({"minItems":1})", "#/minItems"},
           {R"({"maxProperties":1})", "#/maxProperties"},
           {R"({"patternProperties":{}})", "#/patternProperties"},
           {R"({"required":[]})", "#/required"},
           {R"({"properties":{},"items":{}})", "#/items"},
           {R"({"type":"integer","enum":[1,"a"]})", "#/enum/1"},
           {R"({"enum":["a"],"type":"string","pattern":"b"})", "#/pattern"},
           {R"({"const":1,"enum":[1]})", "#/enum"},
           {R"({"type":"object","anyOf":[{"type":"object"}],"properties":{}})", "#/properties"},
           {R"({"type":"string","anyOf":[{"type":"string"},{"minLength":2}]})", "#/anyOf/1"},
           {R"({"type":"integer","oneOf":[{"const":"a"}]})", "#/oneOf/0"},
           {R"({"type":"string","allOf":[{"enum":["a",1]}]})", "#/allOf/0"},
           {R"({"$ref":"#/$defs/a","minItems":1,"$defs":{"a":{}}})", "#/minItems"},
           {R"({"properties":{"a":{}},"patternProperties":{"^b$":{}}})", "#/patternProperties"},
           {R"({"properties":{"a":false}})", "#/properties/a"},
           {R"({"type":"array","contains":{}})", "#/contains"},
           {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
           {R"({"propertyNames":{"pattern":"^a"}})", "#/propertyNames"},
           {R"({"type":"string","format":"ip-address"})", "#/format"},
           {R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{}}})", "#/$ref"},
           {R"({"properties":{"a":{"$ref":"#/$defs/x/anyOf/0"}},"$defs":{"x":{"anyOf":[{}]}}})",
            "#/properties/a/$ref"},
           // Rewritten first:
           {R"({"if":{"type":"null"},"then":false})", "#/if"},
           {R"({"then":{}})", "#/then"},
           {R"({"type":"string","not":{"const":"a"}})", "#/not"},
           {R"({"items":{"not":{"type":"null"}}})", "#/items/not"},
           {R"({"nullable":true})", "#/nullable"},
           {R"({"dependentRequired":{"a":["b"]}})", "#/dependentRequired"},
           {R"({"unevaluatedProperties":false})", "#/unevaluatedProperties"},
           {R"({"$ref":"#/$defs/a%20b","$defs":{"a b":{}}})", "#/$ref"},
           {R"({"type":"number","minimum":1,"exclusiveMinimum":true})", "#/exclusiveMinimum"},
           {R"({"$ref":"#/$defs/a","type":"string","$defs":{"a":{}}})", "#/type"},
       }) {
    const auto features = check_json_schema(schema);
    ASSERT_TRUE(features.has_value()) << schema;
    EXPECT_TRUE(features->has(SchemaFeature::kSiblings)) << schema;
    EXPECT_THAT(find_schema_feature(schema, SchemaFeatures().with(SchemaFeature::kSiblings)),
                testing::StartsWith(std::string(place)))
        << schema;
  }
  for (const std::string_view schema :
       {R"({"items":[{}]})", R"({"items":[{}],"additionalItems":false})"}) {
    const auto features = check_json_schema(schema);
    ASSERT_TRUE(features.has_value()) << schema;
    EXPECT_TRUE(features->has(SchemaFeature::kTupleItems)) << schema;
  }
}

TEST(JsonSchema, TakesFormatsOfNoDraftForAnnotations) {
  EXPECT_EQ(verdict(check_json_schema(R"({"type":"string","format":"bic-code"})")), "ok");
}
INSTANTIATE_TEST_SUITE_P(ThatNothingFits, JsonSchemaRefuses, testing::ValuesIn(kEmpty));

TEST(JsonSchema, FollowsLocalReferences) {
  for (const std::string_view schema : {
           R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}},"description":"d"})",
           R"({"$ref":"#/definitions/a b","definitions":{"a b":{}}})",
           R"({"properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}}})",
           R"({"type":"object","properties":{"child":{"$ref":"#"}}})",
           R"({"type":"array","items":{"$ref":"#"}})",
           R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"next":{"$ref":"#"}},
               "required":["next"]}]})",
           R"({"type":"object","required":["n"],"properties":{"n":{"anyOf":[{"$ref":"#"},
               {"type":"null"}]}}})",
       }) {
    EXPECT_EQ(verdict(check_json_schema(schema)), "ok") << schema;
  }
  // What a reference leads to is read, too, wherever it stands.
  EXPECT_EQ(verdict(check_json_schema(R"({"$ref":"#/x","x":{"not":{}}})")).substr(0, 9),
            "at #/x/no");
}

constexpr Refused kCycles[] = {
    {R"({"$ref":"#"})", "at #: refers to itself without a value in between"},
    {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
     "at #/$defs/a: refers to itself"},
    {R"({"anyOf":[{"$ref":"#"},{"type":"string"}]})", "at #: refers to itself"},
    {R"({"allOf":[{"oneOf":[{"$ref":"#"}]}]})", "at #: refers to itself"},
    {R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})",
     "at #: every value of it contains another one, without end"},
    {R"({"type":"array","minItems":1,"items":{"$ref":"#"}})", "at #: every value of it contains"},
    {R"({"type":"array","minItems":2,"prefixItems":[{},{"$ref":"#"}]})", "at #: every value of it"},
};
INSTANTIATE_TEST_SUITE_P(Cycles, JsonSchemaRefuses, testing::ValuesIn(kCycles));

TEST(JsonSchema, AcceptsRecursionThatEnds) {
  EXPECT_EQ(verdict(check_json_schema(
                R"({"type":"array","minItems":1,"prefixItems":[{}, {"$ref":"#"}]})")),
            "ok");
  EXPECT_EQ(verdict(check_json_schema(
                R"({"type":["object","null"],"required":["a"],"properties":{"a":{"$ref":"#"}}})")),
            "ok");
}

TEST(JsonSchema, ReportsWhatOnlySomeEnginesEnforce) {
  struct Case {
    std::string_view schema;
    SchemaFeature feature;
    std::string_view place;
  };
  constexpr auto kCases = std::to_array<Case>({
      {R"({"items":{"type":"integer","multipleOf":2}})", SchemaFeature::kMultipleOf,
       "#/items/multipleOf"},
      {R"({"type":"object","patternProperties":{"^a$":{}}})", SchemaFeature::kPatternProperties,
       "#/patternProperties"},
      {R"({"additionalProperties":{},"minProperties":1})", SchemaFeature::kPropertyCount,
       "#/minProperties"},
      {R"({"type":"object","maxProperties":1})", SchemaFeature::kPropertyCount, "#/maxProperties"},
      {R"({"allOf":[{},{}]})", SchemaFeature::kAllOf, "#/allOf"},
      {R"({"type":"number","minimum":1})", SchemaFeature::kNumberBounds, "#/minimum"},
      {R"({"type":"string","format":"email"})", SchemaFeature::kUncommonFormat, "#/format"},
      {R"({"type":"string","pattern":"a"})", SchemaFeature::kOpenPattern, "#/pattern"},
  });
  for (const Case& c : kCases) {
    const auto features = check_json_schema(c.schema);
    ASSERT_TRUE(features.has_value()) << verdict(features);
    EXPECT_EQ(*features, SchemaFeatures().with(c.feature)) << c.schema;
    EXPECT_EQ(find_schema_feature(c.schema, SchemaFeatures().with(c.feature)), c.place);
  }
  EXPECT_EQ(find_schema_feature("{}", SchemaFeatures::all()), "");
  EXPECT_EQ(find_schema_feature("[", SchemaFeatures::all()), "");
}

TEST(JsonSchema, RebasesReferencesAndNothingElse) {
  const std::string_view schema =
      R"({"$ref" : "#/$defs/a" , "$defs":{"a":{"items":{"$ref":"#"}},"b":{"const":{"$ref":"#/x"}}}})";

  const RebasedSchema moved = rebase_schema(schema, "/$defs/tool_0");

  EXPECT_TRUE(moved.has_references);
  EXPECT_EQ(
      moved.text,
      R"({"$ref" : "#/$defs/tool_0/$defs/a" , "$defs":{"a":{"items":{"$ref":"#/$defs/tool_0"}},)"
      R"("b":{"const":{"$ref":"#/x"}}}})");
  EXPECT_FALSE(rebase_schema("{}", "/a").has_references);
}

// Chains of references as long as the document: no recursion, and linear time.
TEST(JsonSchema, SurvivesLongChainsOfReferences) {
  constexpr int kLinks = 20'000;
  std::string schema = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < kLinks; ++i) {
    schema += fmt::format(R"("{}":{{"$ref":"#/$defs/{}"}},)", i, i + 1);
  }
  const std::string tail = schema + fmt::format(R"("{}":)", kLinks);
  EXPECT_EQ(verdict(check_json_schema(tail + R"({"type":"string"}}})")), "ok");
  EXPECT_THAT(verdict(check_json_schema(tail + R"({"$ref":"#/$defs/0"}}})")),
              HasSubstr("refers to itself"));
}

TEST(JsonSchema, RefusesTenThousandLevels) {
  std::string schema;
  for (int i = 0; i < 10'000; ++i) {
    schema += R"({"items":)";
  }
  schema += "{}" + std::string(10'000, '}');
  EXPECT_THAT(verdict(check_json_schema(schema)), HasSubstr("nested deeper than 128 levels"));
}

}  // namespace
}  // namespace stator::structured
