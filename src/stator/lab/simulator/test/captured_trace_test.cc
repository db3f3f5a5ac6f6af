// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/captured_trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "stator/lab/simulator/test/read_trace.h"

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Row {
  std::string id;
  int received = 0;
  int ended = 0;
  std::string agent{};
  std::string hashes = "11, 12";
  int block = 16;
};

constexpr int64_t kEpoch = 1'779'163'048'000;

std::string line(const Row& row) {
  return fmt::format(
      R"({{"timestamp":1,"event":{{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":{},)"
      R"({}"request":{{"request_id":"{}","output_tokens":3,"request_received_ms":{},)"
      R"("replay":{{"trace_block_size":{},"input_length":20,"input_sequence_hashes":[{}]}}}}}}}})"
      "\n",
      kEpoch + row.ended,
      row.agent.empty() ? "" : fmt::format(R"("agent_context":{{{}}},)", row.agent), row.id,
      kEpoch + row.received, row.block, row.hashes);
}

TEST(CapturedTrace, SaysHowManyTokensABlockHas) {
  std::istringstream input(line({.id = "a", .ended = 10, .block = 48}));
  const auto trace = open_trace(input, {});
  ASSERT_TRUE(trace.has_value()) << trace.error().message();
  EXPECT_EQ((*trace)->block_tokens(), 48);
}

TEST(CapturedTrace, RequestsArriveInTheOrderInWhichTheyWereReceived) {
  const auto requests = read_all(line({.id = "late", .received = 50, .ended = 60}) +
                                 R"({"event":{"event_type":"tool_end"}})" + "\n" +
                                 line({.id = "early", .received = 20, .ended = 90}));

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  ASSERT_EQ(requests->size(), 2);
  const TraceRequest& first = requests->front();
  EXPECT_EQ(first.request_id, "early");
  EXPECT_EQ(first.line, 3);
  EXPECT_EQ(first.arrival, Duration());
  EXPECT_EQ(first.input_tokens, 20);
  EXPECT_EQ(first.output_tokens, 3);
  EXPECT_THAT(first.hash_ids, ElementsAre(11, 12));
  EXPECT_FALSE(first.wait_for.has_value());
  EXPECT_EQ(requests->back().arrival, milliseconds(30));
}

TEST(CapturedTrace, AgentsWaitForWhatTheyWaitedForThen) {
  const std::string root = R"("session_id":"root")";
  const std::string child = R"("session_id":"child","parent_session_id":"root")";
  const auto requests = read_all(line({.id = "a", .received = 0, .ended = 10, .agent = root}) +
                                 line({.id = "c1", .received = 12, .ended = 20, .agent = child}) +
                                 line({.id = "c2", .received = 25, .ended = 40, .agent = child}) +
                                 line({.id = "b", .received = 43, .ended = 60, .agent = root}));

  ASSERT_TRUE(requests.has_value()) << requests.error().message();
  ASSERT_EQ(requests->size(), 4);
  EXPECT_THAT(*(*requests)[0].wait_for, IsEmpty());
  EXPECT_THAT(*(*requests)[1].wait_for, ElementsAre("a"));
  EXPECT_EQ((*requests)[1].delay, milliseconds(2));
  EXPECT_THAT(*(*requests)[2].wait_for, ElementsAre("c1"));
  EXPECT_THAT(*(*requests)[3].wait_for, ElementsAre("a", "c2"));
  EXPECT_EQ((*requests)[3].delay, milliseconds(3));
}

TEST(CapturedTrace, NamesWhatIsWrong) {
  const std::string good = line({.id = "a"});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {line({.id = "a"}), "trace:2: request_id: must be there, once"},
      {line({.id = "b", .block = 32}), "trace:2: trace_block_size: must be the same in all rows"},
      {line({.id = "b", .agent = R"("session_id":"s")"}), "trace:2: agent_context: must be in all"},
      {line({.id = "b", .hashes = "1"}), "trace:2: input_sequence_hashes: 1 hashes of 16 tokens"},
      {R"({"event":{"event_type":"request_end"}})", "trace:2: request: must be an object"},
      {R"({"event":{}})", "trace:2: event_type: must be there"},
      {"{", "trace:2: line: not JSON"},
  };
  for (const auto& [bad, message] : cases) {
    const auto requests = read_all(good + bad + "\n");

    ASSERT_FALSE(requests.has_value()) << bad;
    EXPECT_THAT(requests.error().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace stator::simulator
