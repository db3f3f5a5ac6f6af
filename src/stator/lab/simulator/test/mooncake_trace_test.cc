// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/mooncake_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/lab/simulator/test/read_trace.h"

namespace stator::simulator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(MooncakeTrace, ReadsRequests) {
  const auto requests = read_all(
      R"({"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [7, 8]}

{"created_time": 1.5, "input_tokens": 1, "output_tokens": 2, "session_id": "s", "delay": 4, "request_id": 12}
)");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  ASSERT_EQ(requests->size(), 2);
  const TraceRequest& first = requests->front();
  EXPECT_EQ(first.input_tokens, 600);
  EXPECT_EQ(first.output_tokens, 3);
  EXPECT_THAT(first.hash_ids, ElementsAre(7, 8));
  const TraceRequest& second = requests->back();
  EXPECT_EQ(second.line, 3);
  EXPECT_EQ(second.arrival, microseconds(1500));
  EXPECT_EQ(second.session, "s");
  EXPECT_EQ(second.delay, milliseconds(4));
  EXPECT_EQ(second.request_id, "12");
  EXPECT_TRUE(second.hash_ids.empty());
}

TEST(MooncakeTrace, AnEmptyFileHasNoRequests) {
  EXPECT_TRUE(read_all("")->empty());
  EXPECT_TRUE(read_all("\n  \n")->empty());
}

struct BadLine {
  std::string line;
  std::string message;
};

TEST(MooncakeTrace, NamesLineAndFieldOfWhatIsWrong) {
  const std::string good = R"({"timestamp":5,"input_length":1,"output_length":1,"hash_ids":[1]})";
  const std::vector<BadLine> lines = {
      {"{", "trace:2: line: not JSON"},
      {"[1]", "trace:2: line: must be a JSON object"},
      {"{}", "trace:2: input_length: must be a whole number"},
      {R"({"input_length":1,"output_length":1})", "trace:2: timestamp: must be a number"},
      {R"({"timestamp":-1,"input_length":1,"output_length":1})", "timestamp: must be from 0"},
      {R"({"timestamp":1e30,"input_length":1,"output_length":1})", "timestamp: must be from 0"},
      {R"({"timestamp":"6","input_length":1,"output_length":1})", "timestamp: must be a number"},
      {R"({"timestamp":6,"output_length":1})", "input_length: must be a whole number"},
      {R"({"timestamp":6,"input_length":-3,"output_length":1})", "input_length: must be a whole"},
      {R"({"timestamp":6,"input_length":1e12,"output_length":1})", "is 1000000000000"},
      {R"({"timestamp":6,"input_length":1.5,"output_length":1})", "is 1.5"},
      {R"({"timestamp":6,"input_tokens":0,"output_length":1})", "input_tokens: must be a whole"},
      {R"({"timestamp":6,"input_length":1,"output_length":0})", "output_length: must be a whole"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"hash_ids":3})",
       "hash_ids: must be an"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"hash_ids":[-1]})",
       "hash_ids: entry 0"},
      {R"({"timestamp":6,"input_length":513,"output_length":1,"hash_ids":[1]})",
       "hash_ids: 1 ids of 512 tokens do not cover input_length 513"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"session_id":[]})", "session_id: must"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"delay":-1})", "delay: must be from 0"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"wait_for":"a"})",
       "wait_for: must be an array"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"wait_for":[{}]})",
       "wait_for: entry 0: must be a string"},
      {R"({"timestamp":6,"input_length":1,"output_length":1,"strict_priority":-1})",
       "strict_priority: must be a number from 0"},
      {R"({"timestamp":4,"input_length":1,"output_length":1})",
       "trace:2: timestamp: 4 ms is before the line above (5 ms)"},
  };
  for (const BadLine& bad : lines) {
    const auto requests = read_all(good + "\n" + bad.line + "\n");

    ASSERT_FALSE(requests.has_value()) << bad.line;
    EXPECT_EQ(requests.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(requests.error().message(), HasSubstr(bad.message));
  }
}

TEST(MooncakeTrace, TurnsOfASessionNeedNoTime) {
  const auto requests =
      read_all(R"({"timestamp":9,"input_length":1,"output_length":1,"session_id":"a"}
{"input_length":2,"output_length":1,"session_id":"a","delay":3}
{"timestamp":4,"input_length":3,"output_length":1,"session_id":"b"}
)");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  EXPECT_EQ((*requests)[1].delay, milliseconds(3));
}

TEST(MooncakeTrace, NullIsAsAbsent) {
  const auto requests = read_all(
      R"({"timestamp":null,"created_time":5,"input_length":1,"output_length":1,"hash_ids":null,"session_id":null,"delay":null,"wait_for":null,"priority":null,"tool_wait_ms":null}
)");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  EXPECT_EQ(requests->front().arrival, milliseconds(5));
  EXPECT_FALSE(requests->front().delay);
  EXPECT_FALSE(requests->front().wait_for);
}

TEST(MooncakeTrace, ReadsBailianTracesInSecondsAndSmallBlocks) {
  const auto requests = read_all(
      R"({"chat_id":159,"parent_chat_id":55,"timestamp":61.114,"input_length":33,"output_length":132,"type":"text","turn":2,"hash_ids":[1,2,3]}
)");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  EXPECT_EQ(requests->front().arrival, milliseconds(61'114));
  const auto uncovered = read_all(
      R"({"chat_id":1,"parent_chat_id":-1,"timestamp":0,"input_length":33,"output_length":1,"hash_ids":[1]}
)");
  ASSERT_FALSE(uncovered.has_value());
  EXPECT_THAT(uncovered.error().message(), HasSubstr("1 ids of 16 tokens"));
}

TEST(MooncakeTrace, SortingLeavesTurnsWithoutATimeBehindTheOnesBefore) {
  const auto requests =
      read_all(R"({"timestamp":9,"input_length":1,"output_length":1,"session_id":"a"}
{"input_length":2,"output_length":1,"session_id":"a","delay":3}
{"timestamp":4,"input_length":3,"output_length":1,"session_id":"b"}
)",
               {.sort = true});

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  EXPECT_EQ((*requests)[0].input_tokens, 3);
  EXPECT_EQ((*requests)[1].input_tokens, 1);
  EXPECT_EQ((*requests)[2].input_tokens, 2);
}

TEST(MooncakeTrace, SortsWhenAsked) {
  const auto requests = read_all(R"({"timestamp":9,"input_length":1,"output_length":1}
{"timestamp":4,"input_length":2,"output_length":1}
{"timestamp":9,"input_length":3,"output_length":1}
)",
                                 {.sort = true});

  ASSERT_TRUE(requests.has_value());
  std::vector<uint32_t> lengths;
  for (const TraceRequest& request : *requests) {
    lengths.push_back(request.input_tokens);
  }
  EXPECT_THAT(lengths, ElementsAre(2, 1, 3));
}

TEST(MooncakeTrace, WhatIsWrittenIsReadAgain) {
  const std::string text =
      R"({"timestamp": 1.5, "input_length": 9, "output_length": 2, "hash_ids": [7], "session_id": "a\u0022"}
{"timestamp": 0, "input_length": 9, "output_length": 2, "request_id": "r", "session_id": "a\u0022", "delay": 3}
{"timestamp": 2, "input_length": 9, "output_length": 2, "strict_priority": 4, "priority": 1.5}
)";
  const auto requests = read_all(text);

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  std::string written;
  for (const TraceRequest& request : *requests) {
    written += render_mooncake(request);
  }
  EXPECT_EQ(written, text);
}

TEST(MooncakeTrace, OfAgentsSaysWhoWaitsForWhom) {
  const auto requests = read_all(
      R"({"timestamp":1,"input_length":9,"output_length":2,"request_id":"r","session_id":"s"}
{"input_length":9,"output_length":2,"request_id":"q","session_id":"s","wait_for":["r"],"delay":3,"tool_wait_ms":4}
)");

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  EXPECT_THAT(*requests->front().wait_for, testing::IsEmpty());
  EXPECT_THAT(*requests->back().wait_for, ElementsAre("r"));
  EXPECT_EQ(requests->back().delay, milliseconds(7));
}

}  // namespace
}  // namespace stator::simulator
