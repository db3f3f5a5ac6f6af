// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "stator/net/detail/response_head.h"

namespace stator::net {
namespace {

TEST(HttpRequest, SplitsTheTarget) {
  EXPECT_EQ(HttpRequest("GET", "/a?b=c?d").path(), "/a");
  EXPECT_EQ(HttpRequest("GET", "/a?b=c?d").query(), "b=c?d");
  EXPECT_EQ(HttpRequest("GET", "/a").query(), "");
  EXPECT_EQ(HttpRequest("OPTIONS", "*").path(), "*");
  EXPECT_EQ(HttpRequest("GET", "http://h:1/a/b?c://d").path(), "/a/b");
  EXPECT_EQ(HttpRequest("GET", "http://h:1/a/b?c://d").query(), "c://d");
  EXPECT_EQ(HttpRequest("GET", "http://h").path(), "/");
  EXPECT_EQ(HttpRequest("GET", "/a/http://h/b").path(), "/a/http://h/b");
}

TEST(HttpRequest, FindsHeadersWithoutRegardToCase) {
  HttpRequest request("GET", "/");
  request.add_header("Content-Type", "a");
  request.add_header("content-type", "b");
  request.add_header("X-Empty", "");

  EXPECT_EQ(request.header("CONTENT-TYPE"), "a");
  EXPECT_EQ(request.header("x-empty"), "");
  EXPECT_EQ(request.header("content"), std::nullopt);
}

TEST(HttpRequest, GivesItsBodyAway) {
  HttpRequest request("POST", "/");
  request.mutable_body() = "bytes";

  const HttpRequest moved = std::move(request);
  EXPECT_EQ(moved.body(), "bytes");
  EXPECT_EQ(moved.method(), "POST");
  HttpRequest again("POST", "/");
  again.mutable_body() = "bytes";
  EXPECT_EQ(again.take_body(), "bytes");
  EXPECT_EQ(again.body(), "");
}

TEST(ErrorBody, HasOpenAiShapeAndEscapesTheMessage) {
  EXPECT_EQ(error_body(404, "no \"x\"\n\xff"),
            R"({"error":{"message":"no \"x\"\n�","type":"invalid_request_error",)"
            R"("param":null,"code":null},"message":"no \"x\"\n�","type":"Not Found",)"
            R"("code":404})");
  EXPECT_NE(error_body(503, "").find("server_error"), std::string::npos);
}

TEST(ReasonPhrase, KnowsThePhrasesAndAdmitsWhatItDoesNot) {
  EXPECT_EQ(reason_phrase(200), "OK");
  EXPECT_EQ(reason_phrase(499), "Client Closed Request");
  EXPECT_EQ(reason_phrase(299), "Unknown");
  EXPECT_EQ(reason_phrase(999), "Unknown");
}

TEST(DateLine, FollowsTheStandard) {
  // The example of RFC 9110, 5.6.7.
  const WallTime time(std::chrono::seconds(784111777));
  EXPECT_EQ(detail::make_date_line(time), "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
}

}  // namespace
}  // namespace stator::net
