// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

using testing::HasSubstr;

Fault parsed(std::string_view json) {
  auto fault = parse_fault(json);
  EXPECT_TRUE(fault) << (fault ? "" : fault.error().message());
  return fault ? *fault : Fault{};
}

TEST(Faults, HitTheWantedRequestsOnly) {
  PendingFaults faults;
  ASSERT_TRUE(faults.add(
      parsed(R"({"kind":"close","path":"/v1/completions","after_tokens":3,"skip":1,"times":2})")));

  EXPECT_EQ(faults.take_for_request("/health").kind, FaultKind::kNone);
  EXPECT_EQ(faults.take_for_request("/v1/completions").kind, FaultKind::kNone);
  EXPECT_EQ(faults.take_for_request("/v1/completions").kind, FaultKind::kClose);
  EXPECT_EQ(faults.take_for_request("/v1/completions").after_tokens, 3U);
  EXPECT_EQ(faults.take_for_request("/v1/completions").kind, FaultKind::kNone);
  EXPECT_TRUE(faults.waiting().empty());
}

TEST(Faults, WithoutAPathOnlyGeneratingRequestsAreCutShort) {
  PendingFaults faults;
  ASSERT_TRUE(faults.add(parsed(R"({"kind":"hang"})")));
  EXPECT_EQ(faults.take_for_request("/metrics").kind, FaultKind::kNone);
  EXPECT_EQ(faults.take_for_request("/generate").kind, FaultKind::kHang);
  ASSERT_TRUE(faults.add(parsed(R"({"kind":"status"})")));
  EXPECT_EQ(faults.take_for_request("/metrics").kind, FaultKind::kStatus);
}

TEST(Faults, BatchesAreHitByTurns) {
  PendingFaults faults;
  ASSERT_TRUE(faults.add(parsed(R"({"kind":"drop_events","every":2,"times":0})")));

  EXPECT_EQ(faults.take_for_batch(), PendingFaults::Batch::kSend);
  EXPECT_EQ(faults.take_for_batch(), PendingFaults::Batch::kDrop);
  EXPECT_EQ(faults.take_for_batch(), PendingFaults::Batch::kSend);
  EXPECT_EQ(faults.take_for_batch(), PendingFaults::Batch::kDrop);
}

TEST(Faults, ReplayIsLateUntilItIsForgotten) {
  PendingFaults faults;
  EXPECT_EQ(faults.replay_delay(), Duration::zero());
  ASSERT_TRUE(faults.add(parsed(R"({"kind":"delay_replay","delay_ms":250})")));
  EXPECT_EQ(faults.replay_delay(), std::chrono::milliseconds(250));
  faults.clear();
  EXPECT_EQ(faults.replay_delay(), Duration::zero());
}

TEST(Faults, AreBounded) {
  PendingFaults faults;
  for (size_t i = 0; i < PendingFaults::kFaultsMax; ++i) {
    ASSERT_TRUE(faults.add(parsed(R"({"kind":"hang"})")));
  }
  EXPECT_FALSE(faults.add(parsed(R"({"kind":"hang"})")));
}

TEST(Faults, ComplaintsNameTheMember) {
  for (const auto& [json, word] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "kind"},
           {"{}", "kind"},
           {R"({"kind":"explode"})", "'kind' must be one of hang, die"},
           {R"({"kind":"hang","after_tokens":-1})", "after_tokens"},
           {R"({"kind":"status","status":200})", "status"},
           {R"({"kind":"hang","sometimes":1})", "sometimes"},
           {R"({"kind":"drop_events","every":0})", "every"},
           {R"({"kind":"block_size"})", "value"},
           {R"({"kind":"delay_replay"})", "delay_ms"}}) {
    const auto fault = parse_fault(json);
    ASSERT_FALSE(fault) << json;
    EXPECT_THAT(fault.error().message(), HasSubstr(word)) << json;
  }
}

}  // namespace
}  // namespace stator::fake_engine
