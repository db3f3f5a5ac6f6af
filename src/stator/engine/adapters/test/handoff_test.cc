// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/handoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/test/recorded.h"
#include "stator/engine/adapters/vllm.h"

namespace stator::engine::adapters {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

EngineFacts facts_of(inference::WorkerRole role, std::string kind = "vllm-0.32.0/nixl/models/m") {
  EngineFacts facts;
  facts.model = "m";
  facts.version = "0.32.0";
  facts.max_model_len = 1024;
  facts.handoff = {.role = role, .kind = std::move(kind)};
  return facts;
}

inference::EngineRequest half_of(inference::Phase phase) {
  inference::EngineRequest request = make_request(phase == inference::Phase::kPrefill ? 1 : 12);
  request.phase = phase;
  request.handoff = {.id = 0xABC, .kind = "vllm-0.32.0/nixl/models/m"};
  return request;
}

TEST(Handoff, ARecordedPrefillAnswerIsCarriedByteForByte) {
  const Recorded answer = load_recorded("vllm-0.32/pd-200.1-prefill");

  const Replayed got =
      replay(make_vllm_completion_raiser(half_of(inference::Phase::kPrefill)), answer, 100);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_EQ(got.all.finish, inference::FinishReason::kLength);
  EXPECT_THAT(got.all.tokens, ElementsAre(18953));
  EXPECT_THAT(answer.body, HasSubstr("\"kv_transfer_params\":" + got.all.handoff));
  EXPECT_THAT(got.all.handoff, HasSubstr(R"("remote_block_ids":[[37,36,35,34,33,32,31]])"));
  EXPECT_TRUE(got.all.handoff.starts_with('{') && got.all.handoff.ends_with('}'));
}

TEST(Handoff, TheOtherRouteGivesTheSame) {
  const Recorded answer = load_recorded("vllm-0.32/pd-generate.1-prefill");

  const Replayed got =
      replay(make_vllm_generate_raiser(half_of(inference::Phase::kPrefill)), answer);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_THAT(answer.body, HasSubstr("\"kv_transfer_params\":" + got.all.handoff));
  EXPECT_THAT(got.all.handoff, HasSubstr("remote_request_id"));
}

TEST(Handoff, WholeAnswersHaveNone) {
  const Recorded answer = load_recorded("vllm-0.32/pd-200.1-prefill");
  EXPECT_EQ(replay(make_vllm_completion_raiser(make_request(1)), answer).all.handoff, "");
}

TEST(Handoff, ThePrefillHalfAsksForOneAnswerInOnePiece) {
  const auto call = lower_vllm_completion(half_of(inference::Phase::kPrefill),
                                          facts_of(inference::WorkerRole::kPrefill));

  ASSERT_TRUE(call.has_value());
  EXPECT_THAT(call->body, HasSubstr(R"("stream":false)"));
  EXPECT_THAT(call->body, Not(HasSubstr("stream_options")));
  EXPECT_THAT(call->body, HasSubstr(R"("max_tokens":1,)"));
  // As recorded from a working pair.
  EXPECT_THAT(
      call->body,
      HasSubstr(R"("kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,)"
                R"("remote_engine_id":null,"remote_block_ids":null,"remote_host":null,)"
                R"("remote_port":null})"));
}

TEST(Handoff, TheDecodeHalfCarriesItVerbatimUnderTheSameName) {
  inference::EngineRequest request = half_of(inference::Phase::kDecode);
  request.handoff.payload = R"({"do_remote_prefill":true, "a key nobody knows":[1.50,"é"]})";

  for (const auto& lower : {lower_vllm_completion, lower_vllm_generate}) {
    const auto call = lower(request, facts_of(inference::WorkerRole::kDecode));
    ASSERT_TRUE(call.has_value());
    EXPECT_THAT(call->body, HasSubstr("\"kv_transfer_params\":" + request.handoff.payload));
    EXPECT_THAT(call->body, HasSubstr(R"("stream":true)"));
    EXPECT_THAT(call->body, HasSubstr(R"("request_id":"st-habc")"));
  }
  EXPECT_EQ(request_name(half_of(inference::Phase::kPrefill)), request_name(request));
}

TEST(Handoff, SharedStorageIsNotTalkedAbout) {
  const EngineFacts facts =
      facts_of(inference::WorkerRole::kPrefill, "vllm-0.32.0/shared/models/m");
  const auto call = lower_vllm_completion(half_of(inference::Phase::kPrefill), facts);
  ASSERT_TRUE(call.has_value());
  EXPECT_THAT(call->body, Not(HasSubstr("kv_transfer_params")));
}

TEST(Handoff, PromptsThatStorageMiscountsAreComputedWithoutAnyCache) {
  EngineFacts shared = facts_of(inference::WorkerRole::kDecode, "vllm-0.32.0/shared/models/m");
  shared.block_size = 16;
  EngineFacts nixl = facts_of(inference::WorkerRole::kDecode);
  nixl.block_size = 16;
  for (const size_t length : {1, 2, 16, 17, 18, 33}) {
    for (const inference::Phase phase :
         {inference::Phase::kWhole, inference::Phase::kPrefill, inference::Phase::kDecode}) {
      inference::EngineRequest request = half_of(phase);
      request.tokens.assign(length, 7);
      for (const auto& lower : {lower_vllm_completion, lower_vllm_generate}) {
        EXPECT_EQ(lower(request, shared)->body.contains(R"("prompt_logprobs":0)"),
                  length == 1 || length == 17 || length == 33)
            << length;
        EXPECT_THAT(lower(request, nixl)->body, Not(HasSubstr("prompt_logprobs")));
      }
    }
  }
}

TEST(Handoff, AServerOnlyTakesItsOwnHalf) {
  const auto dialect = make_vllm_dialect({});
  const auto check = [&](inference::Phase phase, inference::WorkerRole role, std::string kind) {
    inference::EngineRequest request = half_of(phase);
    request.handoff.kind = std::move(kind);
    return check_request(request, dialect->traits(), facts_of(role), 32000);
  };
  const std::string own = "vllm-0.32.0/nixl/models/m";

  EXPECT_TRUE(check(inference::Phase::kPrefill, inference::WorkerRole::kPrefill, own));
  EXPECT_TRUE(check(inference::Phase::kDecode, inference::WorkerRole::kDecode, own));
  EXPECT_TRUE(check(inference::Phase::kWhole, inference::WorkerRole::kDecode, own));
  EXPECT_FALSE(check(inference::Phase::kPrefill, inference::WorkerRole::kDecode, own));
  EXPECT_FALSE(check(inference::Phase::kDecode, inference::WorkerRole::kAggregated, own));
  EXPECT_FALSE(check(inference::Phase::kDecode, inference::WorkerRole::kDecode,
                     "vllm-0.31.0/nixl/models/m"));
}

TEST(Handoff, SglangServersAreToldWhereTheyMeet) {
  const auto dialect = make_sglang_dialect({.host = "10.0.0.5"});
  EngineFacts facts;
  ASSERT_TRUE(
      dialect->learn("/server_info",
                     R"({"version":"0.5.23","page_size":16,"max_total_num_tokens":160,)"
                     R"("disaggregation_mode":"prefill","disaggregation_bootstrap_port":8998})",
                     facts));
  EXPECT_EQ(facts.role, inference::WorkerRole::kPrefill);
  facts.model = "m";
  const auto ability = make_ability("sglang", {}, facts, "10.0.0.5");
  ASSERT_TRUE(ability.has_value()) << ability.error().message();
  EXPECT_EQ(ability->meeting_point, "10.0.0.5:8998");
  EXPECT_FALSE(ability->runs_whole);
  facts.handoff = *ability;

  inference::EngineRequest request = half_of(inference::Phase::kPrefill);
  request.handoff = {.id = (uint64_t{1} << 63) - 1, .kind = ability->kind, .payload = "[::1]:8998"};
  const auto call = dialect->lower(request, facts);

  ASSERT_TRUE(call.has_value()) << call.error().message();
  EXPECT_THAT(call->body, HasSubstr(R"("bootstrap_host":"[::1]","bootstrap_port":8998,)"
                                    R"("bootstrap_room":9223372036854775807)"));
}

TEST(Handoff, TrtllmsWordsComeBackWithTheirOtherType) {
  const auto dialect = make_trtllm_dialect({});
  inference::EngineRequest request = half_of(inference::Phase::kDecode);
  request.handoff.payload =
      R"({"request_type":"context_only","first_gen_tokens":[7],"ctx_request_id":1,)"
      R"("encoded_opaque_state":"c3Q=","new \"key\"":{"x":[1.0]}})";

  const auto call = dialect->lower(request, facts_of(inference::WorkerRole::kDecode));

  ASSERT_TRUE(call.has_value()) << call.error().message();
  EXPECT_THAT(call->body,
              HasSubstr(R"("disaggregated_params":{"first_gen_tokens":[7],"ctx_request_id":1,)"
                        R"("encoded_opaque_state":"c3Q=","new \"key\"":{"x":[1.0]},)"
                        R"("request_type":"generation_only"})"));
  request.handoff.payload = "[1]";
  EXPECT_FALSE(dialect->lower(request, facts_of(inference::WorkerRole::kDecode)));
}

TEST(Handoff, AnObjectIsFoundWhereverItStands) {
  constexpr std::string_view kAnswer =
      R"({"choices":[{"p":{"a": [1, {"b":"}"}]} }],"q":null,"p":{"c":1}})";
  EXPECT_EQ(raw_object(kAnswer, {"choices", "0", "p"}), R"({"a": [1, {"b":"}"}]})");
  EXPECT_EQ(raw_object(kAnswer, {"p"}), R"({"c":1})");
  EXPECT_EQ(raw_object(kAnswer, {"q"}), "");
  EXPECT_EQ(raw_object(kAnswer, {"r"}), "");
  EXPECT_EQ(raw_object("nonsense", {"p"}), "");
}

TEST(Handoff, RolesThatContradictTheServerAreRefused) {
  EngineFacts facts;
  facts.role = inference::WorkerRole::kDecode;
  EXPECT_FALSE(make_ability("sglang", {.role = "prefill"}, facts, "h"));
  EXPECT_FALSE(make_ability("llamacpp", {.role = "prefill"}, EngineFacts(), "h"));
  EXPECT_FALSE(make_ability("sglang", {.role = "prefill"}, EngineFacts(), "h")) << "no port";
  const auto whole = make_ability("vllm", {}, EngineFacts(), "h");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(*whole, inference::HandoffAbility());
}

TEST(Handoff, MeetingPointsHaveAHostAndAPort) {
  EXPECT_EQ(read_meeting_point("h:1")->port, 1);
  EXPECT_EQ(read_meeting_point("[::1]:8998")->host, "[::1]");
  for (const char* bad : {"", "h", ":1", "h:", "h:0", "h:99999", "h:1x"}) {
    EXPECT_FALSE(read_meeting_point(bad)) << bad;
  }
}

}  // namespace
}  // namespace stator::engine::adapters
