// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/grammar.h"

#include <array>

#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using enum Grammar::Syntax;

TEST(Grammar, TellsTheNotationsApart) {
  EXPECT_EQ(detect_syntax("root ::= \"a\""), kEbnf);
  EXPECT_EQ(detect_syntax("# a\n\nroot\n ::= x"), kEbnf);
  EXPECT_EQ(detect_syntax("start: \"a\" // ::=\n# ::="), kLark);
  EXPECT_EQ(detect_syntax(""), kLark);
}

TEST(Ebnf, AcceptsGrammars) {
  for (const std::string_view text : {
           R"(root ::= "a")",
           "# comment\nroot ::= item+ # more\n\nitem ::= [a-z^\\]\\n] | "
           "\"\\x41\\u00e9\\U0001F600\"",
           "root ::= (\"a\" | b{2,3})* c{4} d{5,}\nb ::= \"b\"\nc::=[^\\\"]\nd ::= \"\"",
           "root ::= \"a\"\n  | \"b\"\n  | rest_1.x-y\nrest_1.x-y ::= root?",
           "root ::= \"\" | (\"\")",
           "root ::= (\"x\" ws){ 1 , 3 } . ()\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}",
       }) {
    EXPECT_EQ(verdict(check_grammar(text, kEbnf)), "ok") << text;
  }
}

struct Refused {
  std::string_view text;
  std::string_view verdict;
};

constexpr auto kRefusedEbnf = std::to_array<Refused>({
    {"", "at line 1, column 1: there is no rule: write root ::="},
    {"root ::= a", "at line 1, column 10: a is not defined"},
    {"a ::= \"x\"", "at line 1, column 1: there is no rule named root"},
    {"root ::= \"x\"\nroot ::= \"y\"", "at line 2, column 1: root is defined twice"},
    {"root ::= (\"x\"", "at line 1, column 10: `(` without `)`"},
    {"root ::= \"x\")", "at line 1, column 13: `)` without `(`"},
    {"root ::= \"x", "at line 1, column 10: the string does not end on its line"},
    {"root ::= \"x\\", "at line 1, column 10: the string does not end on its line"},
    {"root ::= [x\n]", "at line 1, column 10: the class does not end on its line"},
    {"root ::= []", "at line 1, column 10: the class is empty"},
    {"root ::= [^]", "at line 1, column 10: the class is empty"},
    {"root ::=\n \"é\" \"\\q\"", "at line 2, column 7: unknown escape \\q"},
    {"root ::= \"\\x4\"", "at line 1, column 11: \\x needs 2 hexadecimal digits"},
    {"root ::= *", "at line 1, column 10: nothing to repeat"},
    {"root ::= \"a\"**", "at line 1, column 14: nothing to repeat"},
    {"root ::= \"a\"{2", "at line 1, column 13: a repetition is {n}"},
    {"root ::= \"a\"{3,2}", "at line 1, column 13: the repetition's numbers"},
    {"root ::= \"a\"{10000000}", "at line 1, column 13: the repetition's numbers"},
    {"root ::= (=\"a\")", "at line 1, column 10: look-ahead is not supported"},
    {"root ::= ::= \"a\"", "at line 1, column 10: `::=` without the name"},
    {"\"a\"", "at line 1, column 1: expected a rule: name ::="},
    {"root ::= a & b", "at line 1, column 12: expected a name, a \"string\""},
});

constexpr auto kRefusedLark = std::to_array<Refused>({
    {"", "at line 1, column 1: there is no rule: write start"},
    {"start: a", "at line 1, column 8: a is not defined"},
    {"a: \"x\"", "at line 1, column 1: there is no rule named start"},
    {"start: A\nA: \"x\"\n\nA: \"y\"", "at line 4, column 1: A is defined twice"},
    {"start: (\"a\"", "at line 1, column 12: a group is not closed"},
    {"start: (\"a\"]", "at line 1, column 8: `(` without `)`"},
    {"start: \"a\")", "at line 1, column 11: `)` closes nothing"},
    {"start: \"a", "at line 1, column 8: the string does not end"},
    {"start: /a", "at line 1, column 8: the regular expression does not end"},
    {"start: /a(?=b)/", "at line 1, column 8: the regular expression at character 2: look-ahead"},
    {"start: \"\\q\"", "at line 1, column 9: unknown escape \\q"},
    {"start: *", "at line 1, column 8: nothing to repeat"},
    {"start: \"a\" ~ b\nb: \"x\"", "at line 1, column 14: expected a number after `~`"},
    {"start: \"a\" ~ 1..b\nb: \"x\"", "at line 1, column 17: expected a number after `..`"},
    {"start: \"a\"..b\nb: \"x\"", "at line 1, column 13: expected a string after `..`"},
    {"start: \"a\" -> \"b\"", "at line 1, column 15: expected a name after `->`"},
    {"start: <a", "at line 1, column 8: the special token does not end"},
    {"start{x}: x", "at line 1, column 6: templates are not supported"},
    {"start: \"a\"\n%override x", "at line 2, column 1: %override is not supported"},
    {"start: \"a\"\n!%import common.A", "at line 2, column 1: unexpected `!`"},
    {"start: \"a\"\n\"b\": x", "at line 2, column 4: unexpected `:`"},
    {"\"b\" x", "at line 1, column 1: expected a rule `name: …`"},
    {"start: %json 1", "at line 1, column 14: expected an object"},
    {"start: %json {", "at line 1, column 14: `{` without `}`"},
    {"start: a %import common.A\na: \"x\"",
     "at line 1, column 10: a directive must begin its line"},
    {"start: \"a\"{b}", "at line 1, column 11: templates are not supported"},
    {"start: {2} \"a\"", "at line 1, column 8: nothing to repeat"},
    {"start: ;", "at line 1, column 8: unexpected character `;`"},
    {"start: é", "at line 1, column 8: unexpected character outside of a string"},
});

TEST(Ebnf, RefusesWithLineAndColumn) {
  for (const Refused& c : kRefusedEbnf) {
    EXPECT_THAT(verdict(check_grammar(c.text, kEbnf)), StartsWith(std::string(c.verdict)))
        << c.text;
  }
}

TEST(Lark, RefusesWithLineAndColumn) {
  for (const Refused& c : kRefusedLark) {
    EXPECT_THAT(verdict(check_grammar(c.text, kLark)), StartsWith(std::string(c.verdict)))
        << c.text;
  }
}

TEST(Lark, AcceptsGrammars) {
  for (const std::string_view text : {
           R"(start: "a")",
           R"(?start: sum
  | product -> p   // alias
# comment
!sum.2: NUMBER "+" [sum] "x"i
product: (NUMBER | "0".."9")+ product? NUMBER~3 NUMBER ~ 2..5
NUMBER: /[0-9]+(\.[0-9]+)?/i
%import common.WS
%import common (INT, SIGNED_INT)
%import common.WORD -> W
%declare INDENT
%ignore WS
)",
           "start: a-b{2}\na-b: \"x\"{,3} \"y\"{ 2 , } [\"z\"]{0,1}",
           "start: W INT\n%import common.WORD -> W\n%import common (INT)",
           "start: <|tool|> <[1-3]> body\nbody[lazy, stop=\"\"]: /.*/",
           "%llguidance {}\nstart: %json {\"type\":\"object\",\"a\":\"}\"} \"x\"\n",
       }) {
    EXPECT_EQ(verdict(check_grammar(text, kLark)), "ok") << text;
  }
}

TEST(Grammar, BoundsSizeDepthAndEncoding) {
  const auto nested = [](std::string_view head, size_t depth) {
    return std::string(head) + std::string(depth, '(') + "\"a\"" + std::string(depth, ')');
  };
  EXPECT_EQ(verdict(check_grammar(nested("root ::= ", kGrammarDepthMax), kEbnf)), "ok");
  EXPECT_EQ(verdict(check_grammar(nested("start: ", kGrammarDepthMax), kLark)), "ok");
  EXPECT_THAT(verdict(check_grammar(nested("root ::= ", kGrammarDepthMax + 1), kEbnf)),
              HasSubstr("deeper than 64"));
  EXPECT_THAT(verdict(check_grammar(nested("start: ", kGrammarDepthMax + 1), kLark)),
              HasSubstr("deeper than 64"));
  EXPECT_THAT(verdict(check_grammar("root ::= \"\xff\"", kEbnf)), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(verdict(check_grammar(std::string(kTextBytesMax + 1, ' '), kEbnf)),
              HasSubstr("longer than 4 MiB"));
  std::string ebnf = "root ::= \"a\"\n";
  std::string lark = "start: \"a\"\n";
  for (size_t i = 0; i < kGrammarRulesMax; ++i) {
    ebnf += "r" + std::to_string(i) + " ::= \"a\"\n";
    lark += "r" + std::to_string(i) + ": \"a\"\n";
  }
  EXPECT_THAT(verdict(check_grammar(ebnf, kEbnf)), HasSubstr("more than 20000 rules"));
  EXPECT_THAT(verdict(check_grammar(lark, kLark)), HasSubstr("more than 20000 rules"));
}

TEST(EbnfToGbnf, PutsEachRuleOnALineWithPlainNames) {
  const auto gbnf =
      ebnf_to_gbnf("root ::= # start\n  a_1\n | \"x_y\" b.c\na_1 ::= [_.]+\nb.c::=a_1");

  ASSERT_TRUE(gbnf.has_value());
  EXPECT_EQ(*gbnf, "root ::= a-1 | \"x_y\" b-c\na-1 ::= [_.] +\nb-c ::= a-1");
  EXPECT_EQ(*ebnf_to_gbnf("root ::= _b\n_b ::= \"\""), "root ::= r-b\nr-b ::= \"\"");
  EXPECT_EQ(verdict(ebnf_to_gbnf("root ::= a_1 a-1\na_1 ::= \"a\"\na-1 ::= \"b\"")),
            "at line 1, column 14: a_1 and a-1 are the same name to llama.cpp, which has neither _ "
            "nor . in names: rename one");
}

}  // namespace
}  // namespace stator::structured
