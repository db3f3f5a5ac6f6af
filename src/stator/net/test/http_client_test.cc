// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_client.h"

#include <gtest/gtest.h>

#include <string>

#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

class HttpClientTest : public HttpServerTest {
 protected:
  std::string url(std::string_view path) const {
    return "http://127.0.0.1:" + std::to_string(server->port()) + std::string(path);
  }
};

TEST_F(HttpClientTest, SendsMethodHeadersAndBody) {
  start([](HttpExchange& exchange) {
    const HttpRequest& request = exchange.request();
    const HttpHeader header{"X-Answer", " yes "};
    exchange.respond(418, "text/plain",
                     std::string(request.method()) + request.body() +
                         std::string(request.header("x-question").value_or("none")),
                     {&header, 1});
  });

  const auto response = http_request(
      {.method = "PUT", .url = url("/"), .headers = {{"X-Question", "why"}}, .body = "body"});

  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(response->status, 418) << "any status is an answer";
  EXPECT_EQ(response->body, "PUTbodywhy");
  EXPECT_EQ(response->header("x-answer"), "yes");
  EXPECT_EQ(response->header("content-type"), "text/plain");
  EXPECT_EQ(response->header("x-other"), std::nullopt);
}

TEST_F(HttpClientTest, PostsWithoutABodyAndHeads) {
  start_echo();

  const auto posted = http_request({.method = "POST", .url = url("/p")});
  ASSERT_TRUE(posted.has_value()) << posted.error().to_string();
  EXPECT_EQ(posted->body, "POST /p ");

  const auto head = http_request({.method = "HEAD", .url = url("/h")});
  ASSERT_TRUE(head.has_value()) << head.error().to_string();
  EXPECT_EQ(head->header("content-length"), "8");
}

TEST_F(HttpClientTest, GivesBodyBytesToTheReader) {
  start([](HttpExchange& exchange) { exchange.respond(200, "", std::string(100'000, 'x')); });
  size_t bytes = 0;

  const auto response =
      http_request({.url = url("/")}, {.body_bytes_max = 10}, [&](std::string_view chunk) {
        bytes += chunk.size();
        return true;
      });

  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(bytes, 100'000U);
  EXPECT_EQ(response->body, "");
}

TEST_F(HttpClientTest, StopsWhenTheReaderSaysSo) {
  start([](HttpExchange& exchange) { exchange.respond(200, "", "anything"); });

  const auto response = http_request({.url = url("/")}, {}, [](std::string_view) { return false; });

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kCancelled);
}

TEST_F(HttpClientTest, AsksForTheRestOfADownload) {
  start([](HttpExchange& exchange) {
    exchange.respond(206, "", exchange.request().header("range").value_or("none"));
  });

  const auto response = http_request({.url = url("/")}, {.resume_from = 1234});

  ASSERT_TRUE(response.has_value()) << response.error().to_string();
  EXPECT_EQ(response->body, "bytes=1234-");
}

TEST_F(HttpClientTest, FollowsRedirectsUnlessToldNotTo) {
  start([](HttpExchange& exchange) {
    const HttpHeader location{"location", "/there"};
    if (exchange.request().path() == "/here") {
      exchange.respond(302, "", "moved", {&location, 1});
    } else {
      exchange.respond(200, "", "arrived");
    }
  });

  const auto followed = http_request({.url = url("/here")});
  ASSERT_TRUE(followed.has_value()) << followed.error().to_string();
  EXPECT_EQ(followed->body, "arrived");
  EXPECT_EQ(followed->header("location"), std::nullopt);
  const auto stayed = http_request({.url = url("/here")}, {.follow_redirects = false});
  ASSERT_TRUE(stayed.has_value()) << stayed.error().to_string();
  EXPECT_EQ(stayed->status, 302);
}

TEST_F(HttpClientTest, LimitsTheBodyItKeeps) {
  start([](HttpExchange& exchange) { exchange.respond(200, "", std::string(1000, 'x')); });

  const auto response = http_request({.url = url("/")}, {.body_bytes_max = 999});

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kTooLarge);
}

TEST_F(HttpClientTest, TimesOut) {
  start([](HttpExchange&) {});

  const auto response = http_request({.url = url("/")}, {.timeout = milliseconds(20)});

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kDeadline);
}

TEST_F(HttpClientTest, ReportsAnAnswerCutShort) {
  start([](HttpExchange& exchange) {
    exchange.start_stream(200, "text/plain");
    exchange.write("half");
    exchange.abort();
  });

  const auto response = http_request({.url = url("/")});

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kDisconnected);
}

TEST_F(HttpClientTest, ReportsThatNobodyListens) {
  start_echo();
  const std::string dead = url("/");
  on_loop([&] { server->stop_accepting(); });

  const auto response = http_request({.url = dead});

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kUnavailable);
  EXPECT_NE(response.error().message().find(dead), std::string::npos);
}

TEST(HttpClient, RefusesWhatIsNoHttpUrl) {
  for (const char* url : {"", "file:///etc/passwd", "http://"}) {
    const auto response = http_request({.url = url});
    ASSERT_FALSE(response.has_value()) << url;
    EXPECT_EQ(response.error().code(), Code::kInvalidArgument) << url;
  }
}

TEST(HttpClient, RefusesHeadersWithLineBreaks) {
  const auto response =
      http_request({.url = "http://127.0.0.1:1/", .headers = {{"x", "a\r\nevil: 1"}}});

  ASSERT_FALSE(response.has_value());
  EXPECT_EQ(response.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::net
