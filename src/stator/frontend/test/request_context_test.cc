// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace stator::frontend {
namespace {

using testing::ElementsAre;
using testing::Pair;

net::HttpRequest request_with(std::initializer_list<net::HttpHeader> headers) {
  net::HttpRequest request("POST", "/v1/chat/completions");
  for (const net::HttpHeader& header : headers) {
    request.add_header(header.name, header.value);
  }
  return request;
}

constexpr std::string_view kPrefix = "x-dynamo-meta-";

TEST(SessionIdentity, IsReadFromOurHeadersBeforeThoseOfAgents) {
  const auto identity = session_identity(request_with({{"X-Dynamo-Session-ID", "s"},
                                                       {"x-dynamo-parent-session-id", "p"},
                                                       {"x-dynamo-session-final", "true"},
                                                       {"x-claude-code-session-id", "c"}}));

  EXPECT_EQ(identity.session, "s");
  EXPECT_EQ(identity.parent, "p");
  EXPECT_TRUE(identity.final);
}

TEST(SessionIdentity, KnowsAgents) {
  const auto claude = session_identity(request_with({{"x-claude-code-session-id", "c"}}));
  EXPECT_EQ(claude.session, "c");
  EXPECT_EQ(claude.parent, "");

  const auto child = session_identity(
      request_with({{"x-claude-code-session-id", "c"}, {"x-claude-code-agent-id", "a"}}));
  EXPECT_EQ(child.session, "a");
  EXPECT_EQ(child.parent, "c");

  const auto grandchild = session_identity(request_with({{"x-claude-code-session-id", "c"},
                                                         {"x-claude-code-agent-id", "a"},
                                                         {"x-claude-code-parent-agent-id", "b"}}));
  EXPECT_EQ(grandchild.parent, "b");

  const auto codex =
      session_identity(request_with({{"thread-id", "t"}, {"x-codex-parent-thread-id", "u"}}));
  EXPECT_EQ(codex.session, "t");
  EXPECT_EQ(codex.parent, "u");
}

TEST(RequestContext, IsNullWhenNothingTravels) {
  EXPECT_EQ(make_request_context(request_with({{"accept", "*/*"}}), kPrefix, {}), nullptr);
}

TEST(RequestContext, TakesMetadataButNoCredentials) {
  const auto context = make_request_context(
      request_with({{"X-Dynamo-Meta-Team", "blue"},
                    {"x-dynamo-meta-authorization", "secret"},
                    {"x-dynamo-meta-token", "Bearer abc"},
                    {"x-dynamo-meta-", "nothing"},
                    {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}),
      kPrefix, {});

  ASSERT_NE(context, nullptr);
  EXPECT_THAT(context->metadata, ElementsAre(Pair("team", "blue")));
  EXPECT_EQ(context->traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
}

TEST(CheckMetadata, CountsEntriesAndBytes) {
  net::HttpRequest request("POST", "/");
  for (int i = 0; i < 64; ++i) {
    request.add_header("x-dynamo-meta-" + std::to_string(i), "v");
  }
  EXPECT_FALSE(check_metadata(request, kPrefix));
  request.add_header("x-dynamo-meta-65", "v");
  EXPECT_TRUE(check_metadata(request, kPrefix));

  net::HttpRequest large("POST", "/");
  large.add_header("x-dynamo-meta-a", std::string(65'536, 'v'));
  EXPECT_TRUE(check_metadata(large, kPrefix));
}

}  // namespace
}  // namespace stator::frontend
