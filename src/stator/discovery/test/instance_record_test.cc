// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/instance_record.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::discovery {
namespace {

InstanceRecord full_record() {
  InstanceRecord record;
  record.key = {"prod", "backend", "generate", WorkerId((uint64_t{1} << 53) - 1)};
  record.incarnation = Incarnation(1'789'000'000'123'456'789);
  record.address = "10.0.0.1:7000";
  record.state = InstanceState::kDraining;
  record.started_at_ms = 1'789'000'000'123;
  record.model = {.name = "m",
                  .aliases = {"a", "b"},
                  .adapters = {"poet", "clerk"},
                  .model_path = "/models/m",
                  .architectural_context = 32768,
                  .context_length = 4096,
                  .block_size = 32,
                  .total_kv_blocks = 1000,
                  .max_num_seqs = 64,
                  .max_num_batched_tokens = 2048,
                  .vocab_size = 151936,
                  .engine_kind = "cpu",
                  .engine_version = "1",
                  .eos_token_ids = {1, 151645},
                  .tool_call_parser = "hermes",
                  .reasoning_parser = "none",
                  .structured_output = true,
                  .structured_replay = true,
                  .prompt_logprobs = true,
                  .handoff = {.role = inference::WorkerRole::kPrefill,
                              .kind = "vllm-0.32.0/nixl/m",
                              .meeting_point = "h:8998",
                              .runs_whole = false},
                  .checksum = "00ff"};
  return record;
}

TEST(InstanceRecord, SurvivesJson) {
  const auto parsed = parse_instance_record(to_json(full_record()));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string();
  EXPECT_EQ(*parsed, full_record());
}

TEST(InstanceRecord, IgnoresUnknownFieldsAndDefaultsMissingOnes) {
  const auto parsed = parse_instance_record(
      R"({"instance_id":5,"address":"h:1","zone":"b","model":{"name":"m","needs":[["decode"]]}})");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string();
  EXPECT_EQ(parsed->key.worker, WorkerId(5));
  EXPECT_EQ(parsed->state, InstanceState::kReady);
  EXPECT_EQ(parsed->model.block_size, 16U);
  EXPECT_EQ(parsed->model.tool_call_parser, "auto");
  EXPECT_FALSE(parsed->model.structured_output);
  EXPECT_FALSE(parsed->model.prompt_logprobs);
}

TEST(InstanceRecord, NamesTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "object"},
      {R"({"instance_id":5)", "object"},
      {R"({"instance_id":"5","address":"h:1"})", "instance_id"},
      {R"({"instance_id":-5,"address":"h:1"})", "instance_id"},
      {R"({"instance_id":0,"address":"h:1"})", "instance_id"},
      {R"({"instance_id":9007199254740992,"address":"h:1"})", "instance_id"},
      {R"({"instance_id":5})", "address"},
      {R"({"instance_id":5,"address":""})", "address"},
      {R"({"instance_id":5,"address":7})", "address"},
      {R"({"instance_id":5,"address":"h:1","state":"dreaming"})", "state"},
      {R"({"instance_id":5,"address":"h:1","component":"A B"})", "component"},
      {R"({"instance_id":5,"address":"h:1","model":3})", "model"},
      {R"({"instance_id":5,"address":"h:1","model":{"kv_block_size":0}})", "kv_block_size"},
      {R"({"instance_id":5,"address":"h:1","model":{"eos_token_ids":7}})", "eos_token_ids"},
      {R"({"instance_id":5,"address":"h:1","model":{"eos_token_ids":["x"]}})", "eos_token_ids"},
      {R"({"instance_id":5,"address":"h:1","model":{"aliases":[1]}})", "aliases"},
      {R"({"instance_id":5,"address":"h:1","model":{"adapters":"poet"}})", "adapters"},
      {R"({"instance_id":5,"address":"h:1","model":{"structured_output":1}})", "structured_output"},
      {R"({"instance_id":5,"address":"h:1","model":{"worker_type":"encode"}})", "worker_type"},
      {R"({"instance_id":5,"address":"h:1","model":{"handoff":7}})", "handoff"},
      {R"({"instance_id":5,"address":"h:1","model":{"handoff":{"kind":7}}})", "kind"},
  };
  for (const auto& [text, field] : cases) {
    const auto parsed = parse_instance_record(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kCorrupt) << text;
    EXPECT_THAT(parsed.error().message(), testing::HasSubstr(field)) << text;
  }
}

TEST(InstanceRecord, RefusesAnEndlessAddress) {
  const auto parsed = parse_instance_record(
      fmt::format(R"({{"instance_id":5,"address":"{}:1"}})", std::string(300, 'h')));

  ASSERT_FALSE(parsed.has_value());
  EXPECT_THAT(parsed.error().message(), testing::HasSubstr("at most 300"));
}

TEST(InstanceRecord, RefusesOversizedText) {
  EXPECT_EQ(parse_instance_record(std::string(kRecordBytesMax + 1, ' ')).error().code(),
            Code::kTooLarge);
}

}  // namespace
}  // namespace stator::discovery
