// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/trace_context.h"

#include <gtest/gtest.h>

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

TEST(Tracestate, IsPassedOnOrDropped) {
  EXPECT_EQ(check_tracestate("a=1,b=2"), "a=1,b=2");
  EXPECT_EQ(check_tracestate("a=\n"), "");
  EXPECT_EQ(check_tracestate(std::string(513, 'a')), "");
}

}  // namespace
}  // namespace stator::telemetry
