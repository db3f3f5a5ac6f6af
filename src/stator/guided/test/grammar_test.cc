// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace stator::guided {
namespace {

/// Every byte is a token; then some longer ones.
const std::vector<std::string>& words() {
  static const std::vector<std::string> kWords = [] {
    std::vector<std::string> out;
    for (int byte = 0; byte < 256; ++byte) {
      out.emplace_back(1, static_cast<char>(byte));
    }
    for (const char* word :
         {"true", "false",  "null",
          "{\"",  "\":",    "\": ",
          "\",",  "\", \"", "name",
          "ab",   "abc",    "\"}",
          "12",   "123",    "}}",
          "],",   "ä",      "日本",
          "  ",   "\n  ",   "hello world, this is a long plain token of many characters"}) {
      out.emplace_back(word);
    }
    return out;
  }();
  return kWords;
}

std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto kVocabulary =
      std::make_shared<const Vocabulary>(static_cast<uint32_t>(words().size() + 2), [](TokenId id) {
        return id < words().size()
                   ? Vocabulary::Token{.bytes = words()[id]}
                   : Vocabulary::Token{.bytes = id == words().size() ? "<|end|>" : "<|tool|>",
                                       .special = true};
      });
  return kVocabulary;
}

std::shared_ptr<Grammar> compile(const std::string& structured_outputs) {
  auto grammar = Grammar::compile(structured_outputs, vocabulary());
  EXPECT_TRUE(grammar) << structured_outputs << ": " << grammar.error().message();
  return grammar ? *grammar : nullptr;
}

/// "yes": a whole text; "more": the beginning of one; else how many bytes were taken.
std::string verdict(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  Guide guide(grammar, {});
  for (size_t i = 0; i < text.size(); ++i) {
    if (!guide.accept(static_cast<unsigned char>(text[i]))) {
      return std::to_string(i);
    }
  }
  return guide.may_end() ? "yes" : "more";
}

/// The mask says what accept() does, token by token.
void expect_mask_fits(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  Guide guide(grammar, {});
  for (size_t i = 0; i <= text.size(); ++i) {
    const TokenSet mask = *guide.mask();
    for (TokenId token = 0; token < vocabulary()->size(); ++token) {
      Guide copy = guide;
      EXPECT_EQ(mask.test(token), copy.accept(token))
          << "token " << token << " after '" << text.substr(0, i) << "'";
    }
    if (i < text.size()) {
      ASSERT_TRUE(guide.accept(static_cast<unsigned char>(text[i]))) << text << " at " << i;
    }
  }
}

/// The mask for few tokens leaves what a look at each token leaves.
void expect_tight_masks_fit(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  Machine& machine = grammar->machine();
  Position at = machine.begin();
  TokenSet scratch;
  for (size_t i = 0; i <= text.size(); ++i) {
    const TokenSet all = machine.mask(at);
    for (const uint32_t left : {1U, 2U, 3U, 4U, 6U, 9U, 14U, 30U, 70U}) {
      TokenSet wanted(vocabulary()->size());
      for (TokenId token = 0; token < vocabulary()->size(); ++token) {
        const Position next = machine.advance(at, token);
        if (!next.is_nowhere() && machine.bytes_to_end(next) < left) {
          wanted.set(token);
        }
      }
      wanted = wanted.none() && !machine.may_end(at) ? all : wanted;
      const TokenSet& mask = machine.mask_within(at, left, scratch);
      EXPECT_TRUE(std::ranges::equal(mask.words(), wanted.words()))
          << left << " tokens after '" << text.substr(0, i) << "': " << mask.count() << " for "
          << wanted.count();
    }
    if (i < text.size()) {
      at = machine.advance(at, static_cast<unsigned char>(text[i]));
    }
  }
}

struct Case {
  const char* grammar;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

void expect_cases(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const auto grammar = compile(one.grammar);
    ASSERT_NE(grammar, nullptr);
    for (const char* text : one.good) {
      EXPECT_EQ(verdict(grammar, text), "yes") << one.grammar << " takes " << text;
      expect_mask_fits(grammar, text);
      expect_tight_masks_fit(grammar, text);
    }
    for (const char* text : one.bad) {
      EXPECT_NE(verdict(grammar, text), "yes") << one.grammar << " refuses " << text;
    }
  }
}

TEST(Grammar, FollowsRegularExpressionsAndChoices) {
  expect_cases({
      {R"({"regex":"[a-z]{2,4}[0-9]?"})", {"ab", "abcd", "abc7"}, {"a", "abcde", "ab77", "Ab"}},
      {R"({"regex":"(ä|日本)+"})", {"ä", "日本ä"}, {"", "\xC3"}},
      {R"({"choice":["yes","no","not yet"]})", {"yes", "no", "not yet"}, {"ye", "not", "maybe"}},
      {R"({"grammar":"root ::= \"a\"{0,5000} \"b\""})", {"b", "aab"}, {"a"}},
  });
}

TEST(Grammar, FollowsSchemas) {
  expect_cases({
      {R"({"json":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},
           "required":["name"]}})",
       {R"({"name": "x"})", R"({"name":"x","age": 7})",
        "{\n  \"name\": \"a\\\"b\",\n  \"age\": -3}"},
       {"{}", R"({"age":1})", R"({"name":"x","age":1.5})", R"({"name":"x","other":1})"}},
      {R"({"json":{"type":"string","minLength":2,"maxLength":3}})",
       {"\"ab\"", "\"日本\"", "\"a\\n\"", "\"a\\u00e4b\""},
       {"\"a\"", "\"abcd\""}},
      {R"({"json":{"type":"string","maxLength":40}})", {"\"\"", "\"hello world, this is\""}, {"x"}},
      {R"({"json":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2}})",
       {"[true]", "[true, false]"},
       {"[]", "[true,true,true]"}},
      {R"({"json":{"type":"array","prefixItems":[{"type":"null"},{"type":"integer"}],"items":false}})",
       {"[]", "[null]", "[null,1]"},
       {"[1]", "[null,1,1]"}},
      {R"({"json":{"enum":["a",1,null,{"b":[1,2]}]}})",
       {"\"a\"", "1", "null", R"({"b":[1,2]})", R"({"b": [1, 2]})"},
       {"2"}},
      {R"({"json":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"object",
           "properties":{"next":{"$ref":"#"}},"required":["next"]}}}})",
       {"null", R"({"next":null})", R"({"next": {"next":null}})"},
       {"{}"}},
      {R"({"json":{"type":"object","properties":{"a":{"type":"integer"}},
           "additionalProperties":{"type":"string"}}})",
       {"{}", R"({"a":1})", R"({"b":"x"})", R"({"a":1,"ab":"x"})"},
       {R"({"a":"x"})", R"({"b":1})"}},
      {R"({"json":{"type":"object","patternProperties":{"^x_[a-z]+$":{"type":"null"}},
           "minProperties":1,"maxProperties":2}})",
       {R"({"x_a":null})", R"({"x_a":null,"x_b":null})"},
       {"{}", R"({"y":null})"}},
      {R"({"json":{"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3}},
           "required":["a"]},{"type":"object","properties":{"a":{"type":"integer","maximum":5},
           "b":{"type":"null"}}}]}})",
       {R"({"a":3})", R"({"a":5,"b":null})"},
       {R"({"a":2})", R"({"a":6})", R"({"b":null})"}},
      {R"({"json":{"type":"string","format":"date"}})", {"\"2024-02-28\""}, {"\"2024-02-30\""}},
      {R"({"json":{"type":"string","pattern":"^a\"+$"}})", {R"("a\"")"}, {R"("a")"}},
      {R"({"json":{"type":"object","properties":{"a":{"additionalProperties":{"type":"null"}}}},
           "disable_additional_properties":true})",
       {R"({"a":{"x":null}})", "{}"},
       {R"({"b":1})", R"({"a":{"x":1}})"}},
      {R"({"json_object":true})",
       {"{}", R"({"a": [1, {"b": null}, "c"], "d": -1.5e3})"},
       {"[]", "1", R"({"a"})"}},
  });
}

TEST(Grammar, FollowsKeywordsBesideEachOther) {
  expect_cases({
      {R"({"json":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},
           "anyOf":[{"required":["a"]},{"required":["b"]}]}})",
       {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":"x"})"}},
      {R"({"json":{"type":"string","anyOf":[{"minLength":3},{"enum":["a",1]}]}})",
       {"\"a\"", "\"abc\""},
       {"1", "\"b\"", "null"}},
      {R"({"json":{"$ref":"#/$defs/a","minLength":2,"$defs":{"a":{"type":"string","maxLength":3}}}})",
       {"\"ab\"", "\"abc\""},
       {"\"a\"", "\"abcd\""}},
      {R"({"json":{"type":"integer","allOf":[{"minimum":3}],"anyOf":[{"maximum":5},{"const":9}]}})",
       {"3", "5", "9"},
       {"2", "8", "\"a\""}},
      {R"({"json":{"type":["string","null"],"enum":["ab",null,1,"abc"],"maxLength":2}})",
       {"\"ab\"", "null"},
       {"1", "\"abc\""}},
      {R"({"json":{"const":1,"enum":[1,2]}})", {"1"}, {"2"}},
      {R"({"json":{"type":"string","pattern":"^[a-z\"]+(-[0-9]*)?$","minLength":3,"maxLength":5}})",
       {"\"abc\"", "\"ab-12\"", R"("a\"b")"},
       {"\"ab\"", "\"ab-123\"", "\"a-1-2\""}},
      {R"({"json":{"type":"string","pattern":"^(a|bc)*$","minLength":4}})",
       {"\"aaaa\"", "\"abcbc\"", "\"aaaaaaaa\""},
       {"\"abc\"", "\"abcb\""}},
      {R"({"json":{"allOf":[{"type":"string","pattern":"^[a-m]{2,6}$"},
           {"type":"string","pattern":"^.*[f-z]b$"},{"maxLength":4}]}})",
       {"\"fb\"", "\"aafb\""},
       {"\"zb\"", "\"aaafb\"", "\"ab\""}},
      {R"({"json":{"minLength":2}})", {"\"ab\"", "7", "[]"}, {"\"a\""}},
      {R"({"json":{"type":"object","properties":{"a":{"type":"null"}},"required":["b"]}})",
       {R"({"b":[1]})", R"({"a":null,"b":"x"})"},
       {R"({"a":null})", "{}"}},
      {R"({"json":{"type":"array","items":[{"type":"null"},{"type":"integer"}],"additionalItems":false}})",
       {"[]", "[null]", "[null,1]"},
       {"[1]", "[null,1,1]"}},
      {R"({"json":{"type":"array","items":[{"type":"null"}],"additionalItems":{"type":"boolean"}}})",
       {"[]", "[null,true,false]"},
       {"[null,1]"}},
  });
}

TEST(Grammar, FollowsBoundsOfNumbers) {
  expect_cases({
      {R"({"json":{"type":"integer","minimum":-3,"maximum":120}})",
       {"-3", "0", "7", "99", "120"},
       {"-4", "121", "007", "1000"}},
      {R"({"json":{"type":"integer","exclusiveMinimum":9}})", {"10", "99", "123456"}, {"9", "-10"}},
      {R"({"json":{"type":"integer","multipleOf":7}})", {"0", "7", "-14", "770"}, {"1", "71"}},
      {R"({"json":{"type":"number","minimum":0.5,"exclusiveMaximum":1.25}})",
       {"0.5", "0.50", "1", "1.0", "1.24"},
       {"0.49", "1.25", "0", "2", "-1"}},
      {R"({"json":{"type":"number","maximum":-2.5}})", {"-2.5", "-3", "-100.1"}, {"-2.4", "1"}},
      {R"({"json":{"type":"number","multipleOf":0.25}})", {"0.5", "1", "2.75"}, {"0.3", "1.1"}},
      {R"({"json":{"type":"integer","multipleOf":5,"minimum":7,"maximum":23}})",
       {"10", "15", "20"},
       {"5", "25", "11"}},
  });
}

TEST(Grammar, FollowsEbnf) {
  expect_cases({
      {R"x({"grammar":"root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\""})x",
       {"1", "1+2", "(1+2)+33"},
       {"1+", "(1", "+1"}},
      {R"({"grammar":"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\""})",
       {"x", "aaxbc"},
       {"ax", "aaxb"}},
      {R"({"grammar":"root ::= a\na ::= b \"x\" | \"1\"\nb ::= a \"y\" | \"2\""})",
       {"1", "2x", "1yx", "2xyx"},
       {"2", "1y"}},
      {R"x({"grammar":"root ::= \"a\" ws . ()\nws ::= | \" \" | \"\\n\" [ \\t]{ 1 , 2 }"})x",
       {"ab", "a b", "a\n \tx", "aé"},
       {"a", "a\nxy", "abc"}},
  });
}

TEST(Grammar, FollowsLark) {
  expect_cases({
      {R"({"grammar":"start: pair (\",\" pair)*\npair: NAME \"=\" NUMBER\n%import common.CNAME -> NAME\n%import common.NUMBER\n%ignore \" \""})",
       {"a=1", "a = 1, b=2.5", " a=1"},
       {"a", "a=1,"}},
      {R"({"grammar":"start: sum\n?sum: product | sum \"+\" product\n?product: /[0-9]+/ | product \"*\" /[0-9]+/"})",
       {"1", "1+2*3"},
       {"1*"}},
      {R"({"grammar":"start: \"select\"i WORD~2\nWORD: \" \" \"a\"..\"c\""})",
       {"SeLeCt a b"},
       {"select a"}},
      {R"({"grammar":"start: \"x\" %json {\"type\":\"integer\"}"})", {"x12"}, {"x"}},
      {R"({"grammar":"start: a-b{2} \"c\"{,2} \"d\"{1,} \"e\"{2,3}\na-b: \"a\" | \"b\""})",
       {"abdee", "aaccdddeee"},
       {"adee", "abcccdee", "abee", "abde"}},
      {R"({"grammar":"start: /[^a-c]+/i"})", {"xyz", "D"}, {"xB", "b"}},
      {R"({"grammar":"start: text \"!\"\ntext[capture, stop=\"</t>\"]: /.*/s"})",
       {"x</t>!", "a\n<</t>!"},
       {"x!", "x</t></t>!", "x"}},
      {R"({"grammar":"start: line \"y\"\nline[lazy]: /.*;/"})", {"ab;y", ";y"}, {"a;b;y", "a\n;y"}},
  });
}

TEST(Grammar, RefusesAttributesThatItDoesNotEnforce) {
  for (const char* attribute : {"max_tokens=3", "stop=/a/", R"(stop=\"\")", "foobar=12"}) {
    const auto grammar = Grammar::compile(
        std::string(R"({"grammar":"start: text\ntext[)") + attribute + R"(]: /.*/"})",
        vocabulary());
    EXPECT_FALSE(grammar) << attribute;
  }
  EXPECT_FALSE(Grammar::compile(R"({"grammar":"start: t\nt[lazy]: /a*b/"})", vocabulary()));
}

TEST(Grammar, FollowsStructuralTags) {
  expect_cases({
      {R"({"structural_tag":{"type":"structural_tag","triggers":["<f"],"structures":[
           {"begin":"<f>","schema":{"type":"integer"},"end":"</f>"}]}})",
       {"", "free < text", "see <f>12</f> and <f>3</f>"},
       {"<f>x</f>", "<fx"}},
      {R"({"structural_tag":{"type":"structural_tag","format":{"type":"triggered_tags",
           "triggers":["<t>"],"tags":[{"begin":"<t>","content":{"type":"any_text"},"end":"</t>"}],
           "at_least_one":true,"stop_after_first":true}}})",
       {"<t>a<b</t>"},
       {"x<t>a</t>", "<t>a</t>x", ""}},
      {R"x({"structural_tag":{"type":"structural_tag","format":{"type":"tags_with_separator",
           "tags":[{"begin":"(","content":{"type":"regex","pattern":"[0-9]+"},"end":")"}],
           "separator":";","at_least_one":false}}})x",
       {"", "(1)", "(1);(22)"},
       {"(1);"}},
  });
}

TEST(Grammar, ReadsSpecialTokens) {
  const auto grammar = compile(R"({"grammar":"start: \"a\" <|tool|> /[0-9]/"})");
  const TokenId tool = vocabulary()->size() - 1;
  Guide guide(grammar, {});

  ASSERT_TRUE(guide.accept('a'));
  EXPECT_EQ(guide.mask()->count(), 1U);
  EXPECT_TRUE(guide.mask()->test(tool));
  ASSERT_TRUE(guide.accept(tool));
  ASSERT_TRUE(guide.accept('7'));
  EXPECT_TRUE(guide.must_end());
}

TEST(Grammar, BeginsBehindReasoning) {
  const auto grammar = compile(R"({"choice":["yes"]})");
  Guide guide(grammar, {.begins_after = "ab}"});

  EXPECT_EQ(guide.mask(), nullptr);
  EXPECT_TRUE(guide.accept('a'));
  EXPECT_TRUE(guide.accept('b'));
  EXPECT_TRUE(guide.accept('}'));
  EXPECT_TRUE(guide.mask()->test('y'));
  EXPECT_FALSE(guide.accept('n'));
}

TEST(Grammar, AnAnswerThatDoesNotOpenReasoningFollowsTheGrammarAtOnce) {
  const auto grammar = compile(R"({"choice":["yes"]})");
  const Guide::Options options = {.begins_after = "b", .opened_by = "a"};
  Guide silent(grammar, options);
  EXPECT_EQ(silent.mask()->count(), 2U);
  EXPECT_TRUE(silent.mask()->test('a'));
  EXPECT_FALSE(silent.accept('n'));
  EXPECT_TRUE(silent.accept('y'));
  EXPECT_EQ(silent.mask()->count(), 1U);
  EXPECT_FALSE(silent.accept('a'));
  EXPECT_FALSE(silent.may_end());

  Guide thinker(grammar, options);
  EXPECT_FALSE(thinker.may_end());
  EXPECT_TRUE(thinker.accept('a'));
  EXPECT_EQ(thinker.mask(), nullptr);
  EXPECT_TRUE(thinker.accept('n'));
  EXPECT_TRUE(thinker.accept('b'));
  EXPECT_FALSE(thinker.accept('n'));
  EXPECT_TRUE(thinker.accept('y'));

  Guide nobody(grammar, {.begins_after = "b", .opened_by = "no such token"});
  EXPECT_EQ(nobody.mask()->count(), 1U);
}

TEST(Grammar, RefusesWhatCannotEndOrIsTooLarge) {
  const auto why = [](const char* text) {
    auto grammar = Grammar::compile(text, vocabulary());
    return grammar ? std::string("ok") : std::string(grammar.error().message());
  };
  EXPECT_EQ(why(R"({"grammar":"root ::= \"a\" b\nb ::= \"x\" b"})"),
            "structured_outputs.grammar at line 2, column 1: can never end: add an alternative "
            "without itself");
  EXPECT_NE(why(R"({"grammar":"root ::= (((\"a\"{99999}){99999}){99999}){99999}"})").find("large"),
            std::string::npos);
  EXPECT_NE(why(R"({"grammar":"start: <|nothing|>"})").find("<|nothing|>"), std::string::npos);
}

TEST(Grammar, EndsWithinTheTokensThatAreLeft) {
  const auto grammar = compile(R"({"json":{"type":"object","properties":{"name":{"type":"string"},
      "all":{"type":"array","items":{"type":"boolean"}}},"required":["name","all"]}})");
  for (const uint32_t tokens_max : {30U, 60U, 100U}) {
    Guide guide(grammar, {});
    uint32_t left = tokens_max;
    for (; left > 0 && !guide.must_end(); --left) {
      const TokenSet mask = *guide.mask(left);
      TokenId token = 0;
      while (!mask.test((token * 7 + left) % vocabulary()->size())) {  // as wayward as can be
        ++token;
      }
      ASSERT_TRUE(guide.accept((token * 7 + left) % vocabulary()->size()));
    }
    EXPECT_TRUE(guide.may_end()) << tokens_max;
  }
}

TEST(Grammar, LooksAheadWithoutMoving) {
  const auto grammar = compile(R"({"json":{"type":"object","properties":{"a":{"type":"string"}},
      "required":["a"],"additionalProperties":false}})");
  ASSERT_NE(grammar, nullptr);
  const std::string text = R"({"a":"ab"})";
  for (const uint32_t left : {100'000U, 40U, 12U}) {
    Guide guide(grammar, {});
    std::vector<TokenId> guesses;
    for (const char c : text + "x") {  // the last is not allowed
      guesses.push_back(static_cast<unsigned char>(c));
    }

    const std::vector<Guide::Ahead> ahead = guide.look_ahead(guesses, left);

    ASSERT_EQ(ahead.size(), text.size());
    for (size_t i = 0; i < ahead.size(); ++i) {
      ASSERT_TRUE(guide.accept(guesses[i]));
      const TokenSet& mask = *guide.mask(left - 1 - static_cast<uint32_t>(i));
      EXPECT_TRUE(std::ranges::equal(ahead[i].tokens().words(), mask.words())) << i;
      EXPECT_EQ(ahead[i].may_end, guide.may_end()) << i;
    }
  }
}

TEST(Grammar, GoesOnAfterEverythingWasForgotten) {
  const auto grammar = compile(R"({"json_object":true})");
  Guide guide(grammar, {});
  for (const char c : std::string_view(R"({"a": [1, )")) {
    ASSERT_TRUE(guide.accept(static_cast<unsigned char>(c)));
  }
  const TokenSet before = *guide.mask();

  grammar->machine().forget_masks();

  EXPECT_TRUE(std::ranges::equal(guide.mask()->words(), before.words()));
}

}  // namespace
}  // namespace stator::guided
