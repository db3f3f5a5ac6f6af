// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/json/value.h"
#include "stator/telemetry/test/facts.h"

namespace stator::telemetry {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(AccessLine, SaysInJsonWhatIsKnown) {
  const std::string line = access_line_json(moved_request());
  const auto json = json::parse(line);

  ASSERT_TRUE(json) << line;
  EXPECT_THAT(line, EndsWith("}\n"));
  EXPECT_EQ(json->find_at({"time"})->text(), "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json->find_at({"request_id"})->text(), "607a0a79-1101-4085-9076-65247db09379");
  EXPECT_EQ(json->find_at({"trace_id"})->text(), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(json->find_at({"tenant"})->text(), "acme");
  EXPECT_EQ(json->find_at({"worker_id"})->text(), "8");
  EXPECT_EQ(json->find_at({"status"})->text(), "200");
  EXPECT_EQ(json->find_at({"prompt_tokens"})->text(), "40");
  EXPECT_EQ(json->find_at({"cached_tokens"})->text(), "32");
  EXPECT_EQ(json->find_at({"output_tokens"})->text(), "7");
  EXPECT_EQ(json->find("ttft_ms")->as_double(), 20);
  EXPECT_EQ(json->find("itl_ms")->as_double(), 10);
  EXPECT_EQ(json->find("duration_ms")->as_double(), 81);
  EXPECT_EQ(json->find_at({"migrations"})->text(), "1");
}

TEST(AccessLine, LeavesOutWhatARequestHasNot) {
  RequestFacts facts;
  facts.method = "GET";
  facts.path = "/health";
  facts.status = 200;
  const auto json = json::parse(access_line_json(facts));

  ASSERT_TRUE(json);
  EXPECT_EQ(json->find("model"), nullptr);
  EXPECT_EQ(json->find("trace_id"), nullptr);
}

TEST(AccessLine, IsOneLineForPeopleWhateverTheClientSent) {
  RequestFacts facts = moved_request();
  EXPECT_EQ(access_line_human(facts),
            "2023-11-14T22:13:20.123Z 10.0.0.1 acme \"POST /v1/chat/completions\" 200 81.0ms "
            "model=demo worker=8 prompt=40 cached=32 output=7 ttft=20.0ms itl=10.00ms "
            "id=607a0a79-1101-4085-9076-65247db09379\n");

  facts.path = "/a\nb\x1b[31m";
  const std::string line = access_line_human(facts);
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  EXPECT_THAT(line, HasSubstr("/a?b?[31m"));
}

TEST(RequestTrace, HasTheRecordsOfTheReference) {
  RequestFacts facts = moved_request();
  facts.block_size = 16;
  facts.blocks = {1, 2, UINT64_MAX};
  const auto json = json::parse(request_trace_line(facts));

  ASSERT_TRUE(json);
  EXPECT_EQ(json->find_at({"schema"})->text(), "dynamo.request.trace.v1");
  EXPECT_EQ(json->find_at({"event_type"})->text(), "request_end");
  EXPECT_EQ(json->find_at({"event_time_unix_ms"})->text(), "1700000000204");
  EXPECT_EQ(json->find_at({"request", "request_received_ms"})->text(), "1700000000123");
  EXPECT_EQ(json->find_at({"request", "replay", "input_length"})->text(), "40");
  const auto* hashes = json->find_at({"request", "replay", "input_sequence_hashes"});
  EXPECT_EQ(hashes->elements()[2].as_uint64(), UINT64_MAX);
  // What load generators replay stands beside it.
  EXPECT_EQ(json->find_at({"input_length"})->text(), "40");
  EXPECT_EQ(json->find_at({"output_length"})->text(), "7");
  EXPECT_EQ(json->find("hash_ids")->size(), 3U);
}

}  // namespace
}  // namespace stator::telemetry
