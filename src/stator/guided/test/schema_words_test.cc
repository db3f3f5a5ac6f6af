// SPDX-License-Identifier: Apache-2.0
// Keywords of JSON Schema that say something about other keywords or other schemas, by the texts
// that follow them.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "stator/guided/grammar.h"

namespace stator::guided {
namespace {

std::shared_ptr<const Vocabulary> bytes() {
  static const std::vector<std::string> kBytes = [] {
    std::vector<std::string> out;
    for (int byte = 0; byte < 256; ++byte) {
      out.emplace_back(1, static_cast<char>(byte));
    }
    return out;
  }();
  static const auto kVocabulary = std::make_shared<const Vocabulary>(
      256, [](TokenId id) { return Vocabulary::Token{.bytes = kBytes[id]}; });
  return kVocabulary;
}

bool follows(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  Guide guide(grammar, {});
  for (const char byte : text) {
    if (!guide.accept(static_cast<uint8_t>(byte))) {
      return false;
    }
  }
  return guide.may_end();
}

struct Words {
  const char* name;
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

class SchemaWords : public testing::TestWithParam<Words> {};

TEST_P(SchemaWords, AreEnforced) {
  const auto& [name, schema, good, bad] = GetParam();

  const auto grammar = Grammar::compile(std::string(R"({"json":)") + schema + "}", bytes());

  ASSERT_TRUE(grammar) << grammar.error().message();
  for (const char* text : good) {
    EXPECT_TRUE(follows(*grammar, text)) << text;
  }
  for (const char* text : bad) {
    EXPECT_FALSE(follows(*grammar, text)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SchemaWords,
    testing::Values(
        Words{"PatternAnywhere",
              R"({"type":"string","pattern":"a+b"})",
              {R"("xxaabyy")", R"("ab")"},
              {R"("ba")", R"("")"}},
        Words{"PatternAtTheBeginning",
              R"({"type":"string","pattern":"^https://"})",
              {R"("https://a.b/c")", R"("https://")"},
              {R"("http://a")", R"("xhttps://")"}},
        Words{"PatternAtTheEnd",
              R"({"type":"string","pattern":"\\.json$","maxLength":8})",
              {R"("a.json")", R"(".json")"},
              {R"("a.jsonx")", R"("abcdefg.json")"}},
        Words{"PatternOfNames",
              R"({"properties":{"a":{"type":"integer"}},"patternProperties":{"^x-":{"type":"null"}},
                 "additionalProperties":false})",
              {R"({"a":1,"x-b":null})", R"({"x-":null})"},
              {R"({"b":1})", R"({"ax-":null})", R"({"x-b":1})"}},
        Words{"PatternWithLookAhead",
              R"({"type":"string","pattern":"^(?!\\.)(?=.*[0-9])(?!.*ab$)[a-z0-9.]+$"})",
              {R"("a1")", R"("1ab.")", R"("ab1")"},
              {R"(".1")", R"("ab")", R"("1ab")", R"("A1")"}},
        Words{"SpaceOfAnyAlphabet",
              R"({"type":"string","pattern":"^\\S[^\\s]$"})",
              {R"("ab")", R"("éß")"},
              {R"("a b")", "\"a\u00a0\"", "\"\ufeffa\"", "\"\u2003a\""}},
        Words{"ListedTextsInTheirShortSpelling",
              R"({"enum":["a\rb","c\td",{"k\f":"\b"}]})",
              {R"("a\rb")", R"("c\td")", R"({"k\f":"\b"})"},
              {R"("a\nb")", R"("a\u000db")"}},
        Words{"CountsInOtherSpellings",
              R"({"type":"string","minLength":2.0,"maxLength":3e0})",
              {R"("ab")", R"("abc")"},
              {R"("a")", R"("abcd")"}},
        Words{"OneOfLargeWholeNumbers",
              R"({"oneOf":[{"const":9007199254740992},{"const":9007199254740993}]})",
              {"9007199254740992", "9007199254740993"},
              {"9007199254740994"}},
        Words{"OneOfBesideEverything",
              R"({"oneOf":[{"type":"number"},{}]})",
              {R"("a")", "null", "[]"},
              {"1", "2.5"}},
        Words{"UnevaluatedItemsBesideAList",
              R"({"items":[{"type":"string"}],"unevaluatedItems":false})",
              {R"(["a"])", "[]"},
              {R"(["a","b"])", "[1]"}},
        Words{"EmptyTuple",
              R"({"type":"array","prefixItems":[],"items":{"type":"integer"}})",
              {"[]", "[1, 2]"},
              {R"(["a"])"}},
        Words{"NotEnum",
              R"({"type":"string","not":{"enum":["a","bc"]}})",
              {R"("b")", R"("ab")", R"("")"},
              {R"("a")", R"("bc")"}},
        Words{"NotConst",
              R"({"type":"integer","minimum":0,"maximum":9,"not":{"const":4}})",
              {"3", "5", "0", "9"},
              {"4", "10"}},
        Words{"NotBoolean",
              R"({"type":["boolean","null"],"not":{"const":true}})",
              {"false", "null"},
              {"true"}},
        Words{"NotType",
              R"({"not":{"type":["string","object"]}})",
              {"1", "null", "[]"},
              {R"("x")", "{}"}},
        Words{"NotPattern",
              R"({"type":"string","not":{"pattern":"^x"}})",
              {R"("ax")", R"("")"},
              {R"("x")", R"("xa")"}},
        Words{"NotRequired",
              R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
                  "not":{"required":["a","b"]},"additionalProperties":false})",
              {R"({"a":1})", R"({"b":1})", "{}"},
              {R"({"a":1,"b":1})"}},
        Words{"Dependent",
              R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
                  "dependentRequired":{"a":["b"]},"additionalProperties":false})",
              {"{}", R"({"b":1})", R"({"a":1,"b":2})"},
              {R"({"a":1})"}},
        Words{
            "DependentSchemas",
            R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":["string","null"]}},
                  "dependencies":{"a":{"properties":{"b":{"type":"null"}},"required":["b"]}},
                  "additionalProperties":false})",
            {"{}", R"({"b":"x"})", R"({"a":1,"b":null})"},
            {R"({"a":1})", R"({"a":1,"b":"x"})"}},
        Words{
            "Condition",
            R"({"type":"object","properties":{"k":{"enum":["x","y"]},"v":{"type":["integer","string"]}},
                  "required":["k","v"],"additionalProperties":false,
                  "if":{"properties":{"k":{"const":"x"}}},"then":{"properties":{"v":{"type":"integer"}}},
                  "else":{"properties":{"v":{"type":"string"}}}})",
            {R"({"k":"x","v":1})", R"({"k":"y","v":"s"})"},
            {R"({"k":"x","v":"s"})", R"({"k":"y","v":1})"}},
        Words{"PatternsBesideProperties",
              R"({"type":"object","properties":{"id":{"type":"integer"},"x-a":{"maximum":5}},
                  "patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
              {R"({"id":1,"x-a":5,"x-":7})", R"({"x-a":1})"},
              {R"({"x-a":6})", R"({"x-b":"s"})", R"({"y":1})", R"({"x-a":1,"x-a":2})"}},
        Words{
            "PatternsThatOverlap",
            R"({"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"type":"string"}},
                  "additionalProperties":{"type":"null"}})",
            {R"({"a":1})", R"({"c":null})"},
            {R"({"ab":1})", R"({"ab":"x"})", R"({"a":"x"})", R"({"c":1})"}},
        Words{"NamesByPattern",
              R"({"type":"object","propertyNames":{"pattern":"^[a-z]{2}$"},
                  "additionalProperties":{"type":"integer"}})",
              {"{}", R"({"ab":1})"},
              {R"({"a":1})", R"({"abc":1})", R"({"ab":"x"})"}},
        Words{
            "NamesByList",
            R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer"}})",
            {"{}", R"({"a":1,"b":2})"},
            {R"({"c":1})", R"({"a":1,"a":2})"}},
        Words{
            "Contains",
            R"({"type":"array","items":{"enum":[1,2,3]},"contains":{"const":2},"minContains":2,"maxItems":4})",
            {"[2,2]", "[1,2,3,2]"},
            {"[2]", "[]", "[1,2,3]", "[2,2,1,1,1]"}},
        Words{"Different",
              R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
              {R"(["c","a"])", R"(["a","b","c"])"},
              {R"(["a","a"])", "[]"}},
        Words{
            "DifferentOfMany",
            R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,3,4,5,6,7,8,9]},"maxItems":3})",
            {"[]", "[1,9]", "[2,5,7]"},
            {"[1,1]", "[1,2,3,4]"}},
        Words{"OneOfNotBoth",
              R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
                  "oneOf":[{"required":["a"]},{"required":["b"]}],"additionalProperties":false})",
              {R"({"a":1})", R"({"b":1})"},
              {"{}", R"({"a":1,"b":2})"}},
        Words{
            "OneOfRanges",
            R"({"oneOf":[{"type":"integer","minimum":0,"maximum":6},{"type":"integer","minimum":4,"maximum":9}]})",
            {"0", "3", "7", "9"},
            {"4", "6", "10"}},
        Words{"Unevaluated",
              R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}}}],
                  "properties":{"b":{"type":"integer"}},"unevaluatedProperties":false})",
              {"{}", R"({"b":1})", R"({"a":2})"},
              {R"({"c":1})", R"({"a":"x"})"}},
        Words{"AbsentProperty",
              R"({"type":"object","properties":{"a":false,"b":{"type":"integer"}},
                  "additionalProperties":{"type":"null"}})",
              {"{}", R"({"b":1,"c":null})"},
              {R"({"a":null})", R"({"a":1})"}},
        Words{"Nullable", R"({"type":"string","nullable":true,"maxLength":1})", {R"("a")"}, {"1"}},
        Words{
            "Draft4Bounds",
            R"({"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false})",
            {"1", "3"},
            {"0", "4"}},
        Words{
            "References",
            R"({"$id":"http://x/root","$defs":{"a/b":{"type":"boolean"},"c":{"$anchor":"here","type":"null"},
                  "d":{"$id":"http://x/d","type":"integer","minimum":1,"maximum":2}},
                  "anyOf":[{"$ref":"#/$defs/a~1b"},{"$ref":"#here"},{"$ref":"http://x/d"},
                           {"$ref":"http://x/root#/$defs/c"},{"$ref":"#/%24defs/c"}]})",
            {"true", "null", "2"},
            {"3", R"("x")"}},
        Words{"Formats", R"({"type":"string","format":"color"})", {R"("#00ff12")"}, {R"("red!")"}}),
    [](const auto& info) { return info.param.name; });

TEST(SchemaWordsRefused, NameTheirPlace) {
  for (const auto& [schema, place] : {
           std::pair(R"({"properties":{"a":{"not":{"format":"date"}}}})", "#/properties/a/not"),
           std::pair(R"({"items":{"type":"array","uniqueItems":true,"items":{"type":"string"}}})",
                     "#/items/uniqueItems"),
           std::pair(R"({"type":"array","contains":{"const":1},"maxContains":2})", "#/maxContains"),
           std::pair(R"({"type":"object","properties":{"a":false},"required":["a"]})", "#"),
       }) {
    const auto grammar = Grammar::compile(std::string(R"({"json":)") + schema + "}", bytes());
    ASSERT_FALSE(grammar) << schema;
    EXPECT_NE(grammar.error().message().find(place), std::string::npos)
        << grammar.error().message();
  }
}

struct FormatCase {
  const char* format;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

TEST(SchemaFormats, AreEnforced) {
  const FormatCase cases[] = {
      {"date", {"\"2024-02-29\"", "\"2000-02-29\""}, {"\"2023-02-29\"", "\"1900-02-29\""}},
      {"uuid", {"\"2EB8AA08-AA98-11EA-b4aa-73b441d16380\""}, {"\"2EB8AA08AA98\""}},
      {"email", {"\"te~st+1@example.com\"", "\"admin@host\""}, {"\"a@\"", "\"@b\""}},
      {"ipv6",
       {"\"::1\"", "\"1::d6:192.168.0.1\"", "\"1:2:3:4:5:6:7::\"", "\"::ffff:0:255.255.255.255\"",
        "\"1:2:3:4:5:6:7:8\""},
       {"\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""}},
      {"uri",
       {"\"http://-.~_!$&'()*+,;=:%40:80%2f::::::@example.com\"", "\"urn:isbn:1\"",
        "\"http://[2001:db8::7]:80/a?b=c#d\"", "\"mailto:a@b.c\""},
       {"\"//a/b\"", "\"a b:c\"", "\"http://a/%zz\"", "\"http://a/<b>\""}},
      {"uri-reference",
       {"\"//foo.bar/?baz=qux#quux\"", "\"a/b:c\"", "\"\"", "\"#x\"", "\"/a\""},
       {R"("\\\\a\\b")", "\"%\""}},
      {"uri-template",
       {"\"http://example.com/{term:1}/{+a,b*}{?q}\"", "\"x\""},
       {"\"http://a/{term\"", "\"{a b}\""}},
      {"json-pointer", {"\"/foo/bar~0/baz~1/%a\"", "\"\"", "\"/é\""}, {"\"/a~\"", "\"a\""}},
      {"hostname",
       {"\"" + std::string(63, 'a') + ".com\"", "\"a.b.c.d.e\""},
       {"\"" + std::string(64, 'a') + ".com\"", "\"-a\""}},
  };
  for (const auto& [format, good, bad] : cases) {
    const auto grammar = Grammar::compile(
        std::string(R"({"json":{"type":"string","format":")") + format + R"("}})", bytes());
    ASSERT_TRUE(grammar) << format;
    for (const std::string& text : good) {
      EXPECT_TRUE(follows(*grammar, text)) << format << " " << text;
    }
    for (const std::string& text : bad) {
      EXPECT_FALSE(follows(*grammar, text)) << format << " " << text;
    }
  }
}

TEST(SchemaWords, OneOfThatNoValueFitsIsRefused) {
  EXPECT_FALSE(Grammar::compile(R"({"json":{"oneOf":[true,{"type":"string"},{}]}})", bytes()));
}

}  // namespace
}  // namespace stator::guided
