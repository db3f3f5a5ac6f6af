// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/live_response.h"

#include <gtest/gtest.h>

namespace stator::responses {
namespace {

constexpr std::string_view kFrames =
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n"
    ":\n\n"
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":1}\n\n";

TEST(LiveResponse, GivesEventsFromAnyOn) {
  LiveResponse live("resp_1", "", [] {});
  live.append(kFrames);

  std::string out;
  EXPECT_EQ(live.read(1, 1 << 20, out), 2U);
  EXPECT_EQ(out,
            "event: response.completed\ndata: "
            "{\"type\":\"response.completed\",\"sequence_number\":1}\n\n");
  out.clear();
  EXPECT_EQ(live.read(2, 1 << 20, out), 2U);
  EXPECT_EQ(out, "");
}

TEST(LiveResponse, GivesNoMoreThanWanted) {
  LiveResponse live("resp_1", "", [] {});
  live.append(kFrames);

  std::string out;
  EXPECT_EQ(live.read(0, 1, out), 1U);
}

TEST(LiveResponse, TakesNothingOnceItIsOver) {
  LiveResponse live("resp_1", "", [] {});
  live.set_response_json("{\"status\":\"queued\"}");
  live.end("{\"status\":\"cancelled\"}");
  live.append(kFrames);
  live.set_response_json("{}");

  EXPECT_TRUE(live.over());
  EXPECT_TRUE(live.events().empty());
  EXPECT_EQ(live.response_json(), "{\"status\":\"cancelled\"}");
}

}  // namespace
}  // namespace stator::responses
