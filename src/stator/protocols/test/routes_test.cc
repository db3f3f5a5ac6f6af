// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/routes.h"

#include <gtest/gtest.h>

#include <string>

#include "stator/protocols/anthropic/anthropic.h"

namespace stator::protocols {
namespace {

TEST(ProtocolRoutes, AreFoundByTheirExactPath) {
  ASSERT_NE(find_route("/v1/messages"), nullptr);
  EXPECT_EQ(find_route("/v1/messages")->operation, Operation::kGenerate);
  EXPECT_EQ(find_route("/v1/messages/count_tokens")->operation, Operation::kCount);
  EXPECT_EQ(find_route("/v1/messages/x"), nullptr);
  EXPECT_EQ(find_route("/v1/chat/completions"), nullptr);
}

TEST(ProtocolRoutes, GiveTheirErrorShapeToWhatLiesUnderThem) {
  EXPECT_EQ(find_protocol("/v1/messages/x"), &anthropic::kProtocol);
  EXPECT_EQ(find_protocol("/v1/messages"), &anthropic::kProtocol);
  EXPECT_EQ(find_protocol("/v1/messages_beta"), nullptr);
  EXPECT_EQ(find_protocol("/v1"), nullptr);
}

TEST(ProtocolRoutes, ChangeTheStatusOfOverloadOnlyIfItIsTheDefault) {
  EXPECT_EQ(style_for(&anthropic::kProtocol, {.overload_status = 503}).overload_status, 529);
  EXPECT_EQ(style_for(&anthropic::kProtocol, {.overload_status = 429}).overload_status, 429);
  EXPECT_EQ(style_for(nullptr, {.overload_status = 503}).overload_status, 503);
}

TEST(ProtocolRoutes, LeadFromAnAnswersIdBackToTheRequest) {
  const std::string request = "0123abcd-89ef-4abc-8def-0123456789ab";
  const std::string id = answer_id(anthropic::kProtocol, request);

  EXPECT_EQ(id, "msg_0123abcd89ef4abc8def0123456789ab");
  EXPECT_EQ(request_id_of(id), request);
  EXPECT_EQ(request_id_of("msg_1"), "");
  EXPECT_EQ(request_id_of(request), "");
}

}  // namespace
}  // namespace stator::protocols
