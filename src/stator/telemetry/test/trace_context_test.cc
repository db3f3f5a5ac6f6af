// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/trace_context.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <span>
#include <string>

namespace stator::telemetry {
namespace {

constexpr std::string_view kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traceparent, GoesThereAndBack) {
  const auto context = parse_traceparent(kGood);

  ASSERT_TRUE(context);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(to_hex(context->trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(to_hex(context->span), "00f067aa0ba902b7");
  EXPECT_EQ(format_traceparent(*context), kGood);
}

TEST(Traceparent, TakesLaterVersionsAndOtherFlags) {
  EXPECT_TRUE(parse_traceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more"));
  EXPECT_FALSE(
      parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02")->sampled);
}

TEST(Traceparent, RefusesWhatIsNone) {
  for (const std::string_view wrong :
       {"", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03more"}) {
    EXPECT_FALSE(parse_traceparent(wrong)) << wrong;
  }
}

TEST(Traceparent, KeepsWhetherTheIdIsRandom) {
  for (const std::string_view flags : {"00", "01", "02", "03"}) {
    const std::string text = std::string(kGood.substr(0, 53)) + std::string(flags);
    EXPECT_EQ(format_traceparent(*parse_traceparent(text)), text);
  }
}

std::string joined(std::initializer_list<std::string_view> lines) {
  return join_tracestate(std::span(lines.begin(), lines.size()));
}

TEST(Tracestate, IsOneListOfAllItsLines) {
  EXPECT_EQ(joined({"a=1,b=2"}), "a=1,b=2");
  EXPECT_EQ(joined({"a=1", "", "b=2,c=3"}), "a=1,b=2,c=3");
  EXPECT_EQ(joined({"\t a=1 \t, ,\tb= 2 2"}), "a=1,b= 2 2");
  EXPECT_EQ(joined({"1t@v=x", "a@@b=y"}), "1t@v=x,a@@b=y");
  EXPECT_EQ(joined({std::string(256, 'k') + "=1"}).size(), 258U);
}

TEST(Tracestate, IsDroppedWhereAMemberIsNone) {
  for (const std::string& wrong :
       {std::string("a=\n"), std::string("a"), std::string("=1"), std::string("A=1"),
        std::string("@a=1"), std::string("a.b=1"), std::string("a =1"), std::string("a=1=2"),
        std::string("a=,b=1"), std::string("a=\x7f"), std::string(257, 'k') + "=1",
        "a=" + std::string(257, 'v')}) {
    EXPECT_EQ(joined({"ok=1", wrong}), "") << wrong;
  }
  std::string many = "k0=0";
  for (int i = 1; i < 32; ++i) {
    many += ",k" + std::to_string(i) + "=0";
  }
  EXPECT_EQ(joined({many}), many);
  EXPECT_EQ(joined({many, "k=0"}), "");
}

TEST(Tracestate, LosesItsLongestMembersThenItsLastOnes) {
  const std::string large = "l=" + std::string(200, 'x');
  const std::string small = "s=" + std::string(98, 'y');
  EXPECT_EQ(joined({large, small, small, small, small}),
            small + "," + small + "," + small + "," + small);
  EXPECT_EQ(joined({small, small, small, small, small, small}).size(), 5 * 101U - 1);
}

}  // namespace
}  // namespace stator::telemetry
