// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template {
namespace {

/// What a template answers on an empty context; compile errors pass through.
Result<std::string> render(const std::string& source, const RenderLimits& limits = {}) {
  STATOR_TRY(const auto compiled, ChatTemplate::compile(source, {}));
  RenderInput input;
  input.limits = limits;
  return compiled->render_context("{}", input);
}

void expect_error(const std::string& source, Code code, std::string_view text) {
  const auto prompt = render(source);
  ASSERT_FALSE(prompt) << source.substr(0, 100);
  EXPECT_EQ(prompt.error().code(), code) << prompt.error().to_string();
  EXPECT_NE(prompt.error().message().find(text), std::string::npos) << prompt.error().to_string();
}

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) {
    text += part;
  }
  return text;
}

TEST(ChatTemplateLimits, EndlessMacroRecursionIsAnError) {
  expect_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", Code::kInvalidArgument,
               "recursion deeper");
}

TEST(ChatTemplateLimits, EndlessLoopRecursionIsAnError) {
  expect_error("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", Code::kInvalidArgument,
               "recursion deeper");
}

TEST(ChatTemplateLimits, NestedRangesRunOutOfSteps) {
  expect_error("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
               Code::kInvalidArgument, "steps");
}

TEST(ChatTemplateLimits, LoopOverAGrowingListEnds) {
  const auto prompt = render("{% set l = [1] %}{% for x in l %}{% do l.append(x) %}{% endfor %}");

  ASSERT_FALSE(prompt);
  EXPECT_TRUE(prompt.error().code() == Code::kInvalidArgument ||
              prompt.error().code() == Code::kTooLarge);
}

TEST(ChatTemplateLimits, HugeRangeIsAnError) {
  expect_error("{{ range(10**9) | list | length }}", Code::kInvalidArgument, "Range too big");
}

TEST(ChatTemplateLimits, MultiplicationBombsAreTooLarge) {
  expect_error("{{ 'a' * 10**9 }}", Code::kTooLarge, "repeated");
  expect_error("{{ 'ab' * 9223372036854775807 }}", Code::kTooLarge, "repeated");
  expect_error("{{ [1] * 10**12 }}", Code::kTooLarge, "repeated");
  expect_error("{{ 2 ** 99999 }}", Code::kInvalidArgument, "4300 digits");
  expect_error("{{ 2 ** (10**18) }}", Code::kInvalidArgument, "4300 digits");
  expect_error("{{ 2 ** (10 ** 40) }}", Code::kInvalidArgument, "4300 digits");
}

TEST(ChatTemplateLimits, DoublingTextEndsAtTheMemoryLimit) {
  const auto prompt = render(
      "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}");

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), Code::kTooLarge);
}

TEST(ChatTemplateLimits, DoublingListsPrintAndCompareWithinBounds) {
  const std::string build =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";

  expect_error(build + "{{ ns.a }}", Code::kTooLarge, "longer");
  expect_error(build + "{{ ns.a | tojson }}", Code::kTooLarge, "longer");
  expect_error(build + "{{ ns.a == ns.b }}", Code::kInvalidArgument, "nested too deeply");
}

TEST(ChatTemplateLimits, ListInsideItselfIsAnError) {
  expect_error("{% set l = [] %}{% do l.append(l) %}{{ l }}", Code::kInvalidArgument, "nested");
  expect_error("{% set l = [] %}{% do l.append(l) %}{{ l | tojson }}", Code::kInvalidArgument,
               "nested");
}

TEST(ChatTemplateLimits, LongTextsAreFoundInRepeatingOnes) {
  const auto prompt = render(
      "{% set s = 'a' * 1000000 %}{% set n = 'a' * 500000 ~ 'b' %}{% set m = 'b' ~ 'a' * 500000 %}"
      "{{ s.find(n) }} {{ s.rfind(m) }} {{ s.count(n) }} {{ n in s }} {{ s.replace(n, '') == s }} "
      "{{ s.split(n) | length }} {{ s.rsplit(m) | length }} {{ s.rpartition(m)[2] == s }} "
      "{{ ('x' ~ n ~ n).find(n) }} {{ (m ~ m ~ 'x').rfind(m) }} {{ (n ~ n).count(n) }} "
      "{{ ('x' ~ m ~ s).rpartition(m)[0] }} {{ (n ~ 'x' ~ n).split(n) }} {{ 'ab'.find('', 2) }} "
      "{{ 'ab'.find('abc') }} {{ ('x' * 40).rfind('x' * 39) }}");

  ASSERT_TRUE(prompt) << prompt.error().to_string();
  EXPECT_EQ(*prompt, "-1 -1 0 False True 1 1 True 1 500001 2 x ['', 'x', ''] 2 -1 1");
}

TEST(ChatTemplateLimits, ReplaceBombIsTooLarge) {
  expect_error("{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}", Code::kTooLarge, "longer");
}

TEST(ChatTemplateLimits, LongWordsAreWrappedInOnePass) {
  EXPECT_EQ(render("{{ ('a' * 2000000) | wordwrap(1) | length }}").value_or("?"), "3999999");
  EXPECT_EQ(render("{{ ('-' * 2000000) | wordwrap(2) | length }}").value_or("?"), "2999999");
  EXPECT_EQ(render("{{ ('a' ~ '-' * 2000000) | wordwrap(2) | length }}").value_or("?"), "3000001");
}

TEST(ChatTemplateLimits, UsesOfLongValuesCountByTheirSize) {
  const auto repeat = [](std::string_view use) {
    return render(
        "{% set text = 'a' * 1000000 %}{% set other = text ~ 'b' %}"
        "{% set list = range(100000) | list %}{% set same = range(100000) | list %}"
        "{% for i in range(100) %}{% set x = " +
            std::string(use) + " %}{% endfor %}",
        {.steps_max = 500'000});
  };
  EXPECT_TRUE(repeat("1"));
  for (const std::string_view use :
       {"text.upper()", "text | capitalize", "text is lower", "text | int", "text.partition('b')",
        "text == other", "text < other", "[text] | unique | list", "list | sum", "list < same"}) {
    const auto prompt = repeat(use);
    ASSERT_FALSE(prompt) << use;
    EXPECT_EQ(prompt.error().message(),
              "rendering the chat template: line 1: the template runs longer than 500000 steps")
        << use;
  }
}

// Schoolbook arithmetic takes the product of the sizes: a use of integers of 4,000 digits takes up
// to milliseconds, so it may not count like a step.
TEST(ChatTemplateLimits, UsesOfLongIntegersCountByTheirSizes) {
  const auto repeat = [](std::string_view use) {
    return render(
        "{% set x = 10 ** 4000 %}{% set text = x | string %}{% for i in range(1000) %}"
        "{% set y = " +
            std::string(use) + " %}{% endfor %}",
        {.steps_max = 100'000});
  };
  for (const std::string_view use : {"1", "2 ** 62", "12345678901234567890 % 7"}) {
    const auto prompt = repeat(use);
    EXPECT_TRUE(prompt) << use << ": " << prompt.error().message();
  }
  for (const std::string_view use :
       {"x % 7 ** 1000", "x // 3", "x * 7 ** 300", "7 ** 4000", "x + 1", "x - 1", "-x", "x < 1",
        "x | abs", "x is even", "(10 ** 300) | round(-200)", "text | int"}) {
    const auto prompt = repeat(use);
    ASSERT_FALSE(prompt) << use;
    EXPECT_NE(prompt.error().message().find("longer than 100000 steps"), std::string::npos)
        << use << ": " << prompt.error().message();
  }
}

TEST(ChatTemplateLimits, OutputBeyondItsLimitIsTooLarge) {
  const auto prompt = render("{% for i in range(100) %}0123456789{% endfor %}",
                             RenderLimits{.output_bytes_max = 100});

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), Code::kTooLarge);
  EXPECT_NE(prompt.error().message().find("100 bytes"), std::string::npos);
}

TEST(ChatTemplateLimits, MemoryBeyondItsLimitIsTooLarge) {
  const auto prompt =
      render("{{ range(100000) | list | length }}", RenderLimits{.memory_bytes_max = 1000});

  ASSERT_FALSE(prompt);
  EXPECT_EQ(prompt.error().code(), Code::kTooLarge);
}

TEST(ChatTemplateLimits, DeepTemplatesDoNotCompile) {
  constexpr size_t kDepth = 100'000;
  expect_error("{{ " + repeated("(", kDepth) + repeated(")", kDepth) + " }}",
               Code::kInvalidArgument, "nested deeper");
  expect_error("{{ " + repeated("[", kDepth), Code::kInvalidArgument, "");
  expect_error("{{ " + repeated("-", kDepth) + "1 }}", Code::kInvalidArgument, "nested deeper");
  expect_error("{{ " + repeated("not ", kDepth) + "1 }}", Code::kInvalidArgument, "nested deeper");
  expect_error("{{ " + repeated("1 if 1 else ", kDepth) + "1 }}", Code::kInvalidArgument,
               "nested deeper");
  expect_error(repeated("{% if 1 %}", kDepth), Code::kInvalidArgument, "nested");
  expect_error("{% set " + repeated("(", kDepth) + repeated(")", kDepth) + " = 1 %}",
               Code::kInvalidArgument, "nested");
}

TEST(ChatTemplateLimits, LongChainsAreAnErrorAndNotAStackOverflow) {
  expect_error("{{ 'a'" + repeated("|upper", 100'000) + " }}", Code::kInvalidArgument, "recursion");
  expect_error("{{ 1" + repeated("*1", 100'000) + " }}", Code::kInvalidArgument, "recursion");
  expect_error("{{ x" + repeated(".x", 100'000) + " }}", Code::kInvalidArgument, "");
}

TEST(ChatTemplateLimits, LongSumsAreFine) {
  const auto prompt = render("{{ 'a'" + repeated("+'a'", 10'000) + " }}");

  ASSERT_TRUE(prompt) << prompt.error().to_string();
  EXPECT_EQ(prompt->size(), 10'001U);
}

TEST(ChatTemplateLimits, NamesOfCharactersAreRefused) {
  expect_error(R"({{ '\N{BULLET}' }})", Code::kInvalidArgument, "write the character itself");
}

TEST(ChatTemplateLimits, DeepJsonIsAnError) {
  Arena arena(size_t{64} << 20U);
  const auto deep = Value::from_json(repeated("[", 100'000), arena);
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(Value::from_json(repeated("[", 100) + repeated("]", 100), arena));
}

TEST(ChatTemplateLimits, WideFormatsAreErrors) {
  expect_error("{{ '%99999999999d' % 1 }}", Code::kInvalidArgument, "10000");
  expect_error("{{ '{:99999999999}'.format(1) }}", Code::kInvalidArgument, "10000");
  expect_error("{{ 'a'.center(10**15) }}", Code::kInvalidArgument, "100000");
  expect_error("{{ 'a' | indent(10**15) }}", Code::kInvalidArgument, "10000");
}

TEST(ChatTemplateLimits, IntegerEdgesAreDefined) {
  EXPECT_EQ(render("{{ -9223372036854775807 - 2 }}").value_or("?"), "-9223372036854775809");
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) // -1 }}").value_or("?"), "9223372036854775808");
  EXPECT_EQ(render("{{ 9223372036854775808 + 1 }}").value_or("?"), "9223372036854775809");
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}").value_or("?"), "0");
  EXPECT_EQ(
      render("{{ 'abc'[::-9223372036854775807] }}{{ 'abc'[-9223372036854775807:] }}").value_or("?"),
      "cabc");
}

}  // namespace
}  // namespace stator::chat_template
