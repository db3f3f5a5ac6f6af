// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/regex.h"

#include <array>

#include "stator/structured/grammar.h"
#include "stator/structured/structured_output.h"
#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Converted {
  std::string_view pattern;
  std::string_view gbnf;  // after "root ::= "
};

constexpr auto kAccepted = std::to_array<Converted>({
    {"abc", R"("abc")"},
    {"a|b|", R"("a" | "b" | "")"},
    {"^a$", R"("a")"},
    {"^a|b$", R"("a" | "b")"},
    {"a*b+c?", R"("a"* "b"+ "c"?)"},
    {"a*?b+?c??d{2}?", R"("a"* "b"+ "c"? "d"{2})"},
    {"a{3}b{1,}c{0,2}d{0,1}e{0,}f{1,}", R"("a"{3} "b"+ "c"{0,2} "d"? "e"* "f"+)"},
    {"a{2,}", R"("a"{2,})"},
    {"(ab)+", R"(("ab")+)"},
    {"(?:a|b)c", R"(("a" | "b") "c")"},
    {"(?<year>\\d{4})-(?<m_1>[0-9])", R"([0-9]{4} "-" [0-9])"},
    {"(a+)?", R"(("a"+)?)"},
    {"()", R"("")"},
    {".", R"([^\n])"},
    {"\\w\\s", R"([0-9A-Z_a-z] [\t-\r ])"},
    {"[^a]", R"([\x00-`b-\uD7FF\uE000-\U0010FFFF])"},
    {"\\D", R"([\x00-/:-\uD7FF\uE000-\U0010FFFF])"},
    {"[a-c-]", R"([\x2Da-c])"},
    {"[-a]", R"([\x2Da])"},
    {"[\\]\\[\\\\^]", R"([\[-\x5E])"},
    {"[\\d_x-z]", R"([0-9_x-z])"},
    {"[ba-d]", R"([a-d])"},
    {"\\.\\*\\\\\\\"\\/\\-", R"(".*\\\"/-")"},
    {"\\n\\r\\t\\f\\v\\0", R"("\n\r\t\x0C\x0B\x00")"},
    {"\\x41\\u00e9\\u{1F600}\\x{42}", R"("Aé😀B")"},
    {"é[à-ÿ]", R"("é" [\u00E0-\u00FF])"},
    {"\"", R"("\"")"},
});

TEST(Regex, AcceptsTheCommonLanguageAndConvertsIt) {
  for (const Converted& c : kAccepted) {
    EXPECT_EQ(verdict(check_regex(c.pattern)), "ok") << c.pattern;
    const std::string gbnf = regex_to_gbnf(c.pattern);
    EXPECT_EQ(gbnf, "root ::= " + std::string(c.gbnf)) << c.pattern;
    EXPECT_EQ(verdict(check_grammar(gbnf, Grammar::Syntax::kEbnf)), "ok") << gbnf;
  }
}

TEST(Regex, KnowsWhetherAPatternIsAnchored) {
  const auto anchored = [](std::string_view pattern) { return check_regex(pattern)->anchored; };
  EXPECT_TRUE(anchored("^a$"));
  EXPECT_TRUE(anchored("^a$|^b$"));
  EXPECT_FALSE(anchored("^a|b$"));
  EXPECT_FALSE(anchored("^a"));
  EXPECT_FALSE(anchored("a$"));
  EXPECT_FALSE(anchored("a"));
}

struct Refused {
  std::string_view pattern;
  std::string_view verdict;
};

constexpr auto kRefused = std::to_array<Refused>({
    {"", "must not be empty"},
    {"a(?=b)", "at character 2: look-ahead and look-behind"},
    {"é(?!b)", "at character 2: look-ahead and look-behind"},
    {"(?<=b)", "at character 1: look-ahead and look-behind"},
    {"(?<!b)", "at character 1: look-ahead and look-behind"},
    {"(?>a)", "at character 1: atomic groups"},
    {"(?i)a", "at character 1: flags"},
    {"(?P=a)", "at character 1: flags and this kind of group"},
    {"(?<>a)", "at character 1: the group's name"},
    {"(?<a", "at character 1: the group's name"},
    {"(a)\\1", "at character 4: back-references"},
    {"\\k<a>", "at character 1: back-references"},
    {"\\bfoo", "at character 1: this anchor is not supported"},
    {"foo\\Z", "at character 4: this anchor is not supported"},
    {"\\p{L}", "at character 1: Unicode properties"},
    {"\\q", "at character 1: the escape \\q is not supported"},
    {"a\\", "at character 2: the pattern ends in the middle of an escape"},
    {"\\xZ1", "at character 1: must be \\xHH"},
    {"\\u12", "at character 1: must be \\xHH, \\uHHHH"},
    {"\\u{110000}", "at character 1: must be \\xHH"},
    {"\\ud800", "at character 1: must be \\xHH"},
    {"\\u{}", "at character 1: must be \\xHH"},
    {"a^b", "at character 2: `^` is only supported at the very beginning"},
    {"(^a)", "at character 2: `^` is only supported"},
    {"a$b", "at character 2: `$` is only supported at the very end"},
    {"(a$)", "at character 3: `$` is only supported"},
    {"*a", "at character 1: `*` has nothing to repeat"},
    {"a|+", "at character 3: `+` has nothing to repeat"},
    {"a**", "at character 3: one repetition after another"},
    {"a{2}{3}", "at character 5: one repetition after another"},
    {"a++", "at character 3: possessive repetition"},
    {"a{", "at character 2: a repetition is {n}"},
    {"a{,3}", "at character 2: a repetition is {n}"},
    {"a{1001}", "at character 2: a repetition is {n}"},
    {"a{3,2}", "at character 2: the smaller number must come first"},
    {"{2}", "at character 1: write \\{ for the character"},
    {"a}", "at character 2: write \\} for the character"},
    {"a]", "at character 2: write \\] for the character"},
    {"(a", "at character 1: `(` without `)`"},
    {"a)", "at character 2: `)` without `(`"},
    {"[a", "at character 1: `[` without `]`"},
    {"[]", "at character 1: the class matches no character"},
    {"[^\\s\\S]", "at character 1: the class matches no character"},
    {"[z-a]", "at character 2: the range must go from a lower"},
    {"[\\d-z]", "at character 2: the range must go from a lower"},
    {"[[:alpha:]]", "at character 2: `[` inside a class"},
    {"[a&&b]", "at character 3: `&&` inside a class"},
    {"\xff", "at character 1: the pattern is not valid UTF-8"},
    {"a{1000}{2}", "at character 8: one repetition"},
    {"((a{1000}){1000}b)", "at character 11: the pattern is longer than 100000 characters"},
});

TEST(Regex, RefusesTheRestWithItsPlace) {
  for (const Refused& c : kRefused) {
    EXPECT_THAT(verdict(check_regex(c.pattern)), StartsWith(std::string(c.verdict))) << c.pattern;
  }
}

TEST(Regex, BoundsLengthAndDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '(') + "a" + std::string(depth, ')');
  };
  EXPECT_EQ(verdict(check_regex(nested(kRegexDepthMax))), "ok");
  EXPECT_THAT(verdict(check_regex(nested(kRegexDepthMax + 1))), HasSubstr("deeper than 64"));
  EXPECT_EQ(verdict(check_regex(std::string(kRegexBytesMax, 'a'))), "ok");
  EXPECT_THAT(verdict(check_regex(std::string(kRegexBytesMax + 1, 'a'))),
              HasSubstr("longer than 64 KiB"));
}

TEST(Choice, BecomesAPatternAndAGrammar) {
  const std::vector<std::string> options = {"yes", "no.", "a\"b\\c", "x\ny", "(1|2)*[3]{4}^$", "é"};

  const std::string pattern = choice_to_regex(options);
  const std::string gbnf = choice_to_gbnf(options);

  EXPECT_EQ(pattern, R"((yes|no\.|a"b\\c|x\ny|\(1\|2\)\*\[3\]\{4\}\^\$|é))");
  EXPECT_EQ(gbnf, R"(root ::= "yes" | "no." | "a\"b\\c" | "x\ny" | "(1|2)*[3]{4}^$" | "é")");
  EXPECT_EQ(verdict(check_regex(pattern)), "ok");
  EXPECT_EQ(verdict(check_grammar(gbnf, Grammar::Syntax::kEbnf)), "ok");
}

}  // namespace
}  // namespace stator::structured
