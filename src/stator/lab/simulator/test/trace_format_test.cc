// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/trace_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace stator::simulator {
namespace {

using testing::HasSubstr;

std::string first_error(const std::string& text, const TraceOptions& options = {}) {
  std::istringstream input(text);
  auto trace = open_trace(input, options);
  if (!trace) {
    return std::string(trace.error().message());
  }
  TraceRequest request;
  while (true) {
    const auto found = (*trace)->next(request);
    if (!found) {
      return std::string(found.error().message());
    }
    if (!*found) {
      return "";
    }
  }
}

TEST(TraceFormat, IsToldByTheFirstLines) {
  EXPECT_EQ(first_error(""), "");
  EXPECT_EQ(first_error("\n \n"), "");
  EXPECT_EQ(first_error(R"({"timestamp":0,"input_length":1,"output_length":1})"), "");
  EXPECT_EQ(first_error("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n"), "");
  EXPECT_EQ(first_error("Timestamp,Model,Request tokens,Response tokens\n1,m,2,3\n"), "");
  EXPECT_THAT(first_error("a,b,c\n1,2,3\n"), HasSubstr("trace:1: line: neither JSON Lines nor"));
  EXPECT_THAT(first_error(std::string("\x1f\x8b\x08\x00 gzip", 9)), HasSubstr("neither"));
  EXPECT_THAT(first_error("{\n"), HasSubstr("trace:1: line: not JSON"));
  EXPECT_THAT(first_error("[]\n"), HasSubstr("trace:1: line: must be a JSON object"));
}

TEST(TraceFormat, IsWhatWasSaid) {
  const std::string turns = R"({"timestamp":0,"input_length":1,"output_length":1,"session_id":"a"}
{"input_length":1,"output_length":1,"session_id":"a","delay":1}
)";
  EXPECT_EQ(first_error(turns, {.format = "mooncake"}), "");
  EXPECT_THAT(first_error(turns, {.format = "agentic"}), HasSubstr("timestamp: must be a number"));
  EXPECT_THAT(first_error(turns, {.format = "azure"}), HasSubstr("header: has no column"));
  EXPECT_THAT(first_error(turns, {.format = "tape"}), HasSubstr("no trace format 'tape'"));
}

}  // namespace
}  // namespace stator::simulator
