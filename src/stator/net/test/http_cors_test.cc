// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

constexpr std::string_view kAllowed = "access-control-allow-origin: https://a.example\r\n";

class HttpCorsTest : public HttpServerTest {
 protected:
  HttpCorsTest() { config.cors_origins = "https://a.example"; }

  RawClient::Response ask(std::string_view start, std::string_view origin,
                          std::string_view more = "", std::string_view body = "") {
    RawClient client = connect();
    EXPECT_TRUE(client.send(std::string(start) +
                            " HTTP/1.1\r\nhost: test\r\norigin: " + std::string(origin) + "\r\n" +
                            std::string(more) + "\r\n" + std::string(body)));
    return client.read_response().value_or(RawClient::Response{});
  }
  RawClient::Response ask_first(std::string_view origin) {
    return ask("OPTIONS /v1/models", origin,
               "access-control-request-method: POST\r\n"
               "access-control-request-headers: authorization\r\n");
  }
};

TEST_F(HttpCorsTest, AnswersThePreflightOfAnAllowedOrigin) {
  start_echo();

  const auto answer = ask_first("https://a.example");

  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.body, "");
  for (const std::string_view line :
       {kAllowed, std::string_view("access-control-allow-methods: GET, HEAD, POST\r\n"),
        std::string_view("access-control-allow-headers: authorization\r\n"),
        std::string_view("access-control-max-age: 600\r\n"),
        std::string_view("vary: Origin\r\n")}) {
    EXPECT_TRUE(answer.has(line)) << line << answer.head;
  }
}

TEST_F(HttpCorsTest, LeavesThePreflightOfAnotherOriginToTheHandler) {
  start_echo();

  const auto answer = ask_first("https://b.example");

  EXPECT_EQ(answer.body, "OPTIONS /v1/models ");
  EXPECT_FALSE(answer.has("access-control"));
}

TEST_F(HttpCorsTest, MarksAnswersStreamsAndRefusals) {
  config.body_bytes_max = 10;
  start([](HttpExchange& exchange) {
    if (exchange.request().path() == "/stream") {
      exchange.start_stream(200, "text/event-stream");
      exchange.write("data: 1\n\n");
      exchange.finish();
    } else {
      exchange.respond(404, "", "");
    }
  });

  EXPECT_TRUE(ask("GET /stream", "https://a.example").has(kAllowed));
  EXPECT_TRUE(ask("GET /", "https://a.example").has(kAllowed));
  const auto refused = ask("POST /", "https://a.example", "content-length: 11\r\n", "12345678901");
  EXPECT_EQ(refused.status, 413);
  EXPECT_TRUE(refused.has(kAllowed)) << refused.head;
  EXPECT_FALSE(ask("GET /stream", "https://b.example").has("access-control"));
  EXPECT_FALSE(ask("GET /", "https://b.example").has("access-control"));
}

TEST_F(HttpCorsTest, SaysNothingUnlessConfigured) {
  config.cors_origins = "";
  start_echo();

  const auto preflight = ask_first("https://a.example");
  const auto answer = ask("GET /", "https://a.example");

  EXPECT_EQ(preflight.body, "OPTIONS /v1/models ");
  for (const auto& each : {preflight, answer}) {
    EXPECT_FALSE(each.has("access-control"));
    EXPECT_FALSE(each.has("vary"));
  }
}

TEST_F(HttpCorsTest, DoesNotListenWithTextThatIsNoOrigin) {
  config.cors_origins = "a.example";

  const auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);

  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::net
