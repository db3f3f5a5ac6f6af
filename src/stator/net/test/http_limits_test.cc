// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "stator/core/log.h"
#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

class HttpLimitsTest : public HttpServerTest {
 protected:
  /// Sends `bytes`, expects an error answer with `status` and then the end of the connection.
  void expect_refusal(std::string_view bytes, int status, std::string_view reason) {
    RawClient client = connect();
    ASSERT_TRUE(client.send(bytes));
    const auto response = client.read_response();
    ASSERT_TRUE(response) << "for " << bytes.substr(0, 100);
    EXPECT_EQ(response->status, status) << response->body;
    EXPECT_TRUE(response->has("connection: close\r\n"));
    EXPECT_TRUE(response->has("content-type: application/json\r\n"));
    EXPECT_TRUE(response->body.starts_with("{\"error\":{\"message\":\"")) << response->body;
    EXPECT_TRUE(metric_is("stator_http_rejected_total{reason=\"" + std::string(reason) + "\"} 1"))
        << metrics.render();
    client.shutdown_write();
    EXPECT_EQ(client.read_to_end(), "");
    EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
  }
};

TEST_F(HttpLimitsTest, RefusesGarbage) {
  start_echo();
  expect_refusal("\x16\x03\x01 this is no HTTP\r\n\r\n", 400, "malformed");
}

TEST_F(HttpLimitsTest, RefusesOtherVersions) {
  start_echo();
  expect_refusal("GET / HTTP/3.0\r\nhost: test\r\n\r\n", 505, "malformed");
}

TEST_F(HttpLimitsTest, RefusesLargeHeaders) {
  config.header_bytes_max = 1000;
  start_echo();
  expect_refusal("GET / HTTP/1.1\r\nhost: test\r\nx: " + std::string(1000, 'x') + "\r\n\r\n", 431,
                 "headers_too_large");
}

TEST_F(HttpLimitsTest, RefusesADeclaredBodyBeyondTheLimitWithoutReadingIt) {
  config.body_bytes_max = 1000;
  start_echo();
  expect_refusal("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1001\r\n\r\nsome", 413,
                 "body_too_large");
}

TEST_F(HttpLimitsTest, RefusesAChunkedBodyBeyondTheLimit) {
  config.body_bytes_max = 10;
  start_echo();
  expect_refusal(
      "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
      "8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n",
      413, "body_too_large");
}

TEST_F(HttpLimitsTest, TheRefusalSurvivesAClientThatGoesOnSending) {
  config.body_bytes_max = 1000;
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n" +
                          std::string(1'000'000, 'x')));

  EXPECT_EQ(client.read_response().value().status, 413);
}

TEST_F(HttpLimitsTest, TheRefusalSurvivesABodyTwiceTheLimit) {
  config.body_bytes_max = 8UL << 20;
  start_echo();
  RawClient client = connect();
  const std::string body(2 * config.body_bytes_max, 'x');
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));

  EXPECT_EQ(client.read_response().value().status, 413);
}

TEST_F(HttpLimitsTest, GivesUpOnAClientThatNeverStopsSending) {
  config.body_bytes_max = 1000;
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 100000000\r\n\r\n"));
  const std::string part(1024 * 1024, 'x');

  for (int i = 0; i < 200 && client.send(part); ++i) {
  }

  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
}

TEST_F(HttpLimitsTest, RefusesHeadersThatTakeTooLong) {
  config.header_timeout = milliseconds(20);
  start_echo();
  expect_refusal("GET / HTTP/1.1\r\nhost:", 408, "timeout");
}

TEST_F(HttpLimitsTest, RefusesABodyThatTakesTooLong) {
  config.body_timeout = milliseconds(20);
  start_echo();
  expect_refusal("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhalf", 408, "timeout");
}

TEST_F(HttpLimitsTest, ClosesIdleConnectionsSilently) {
  config.idle_timeout = milliseconds(20);
  start_echo();
  RawClient fresh = connect();
  RawClient used = connect();
  // A busy machine may take longer than the limit until the request is sent.
  while (!used.send(get("/")) || !used.read_response()) {
    used = connect();
    ASSERT_TRUE(used.connected());
  }

  EXPECT_EQ(fresh.read_to_end(), "");
  EXPECT_EQ(used.read_to_end(), "");
}

TEST_F(HttpLimitsTest, ABusyExchangeHasNoIdleTimeout) {
  config.idle_timeout = milliseconds(10);
  config.header_timeout = milliseconds(10);
  config.body_timeout = milliseconds(10);
  std::atomic<HttpExchange*> held = nullptr;
  start([&](HttpExchange& exchange) { held = &exchange; });
  RawClient busy = connect();
  // A busy machine may take longer than the limit until the request is sent. One that connects
  // later and is closed for being idle tells that the request has arrived or will not.
  while (!busy.send(get("/")) || (connect().read_to_end(), held == nullptr)) {
    busy = connect();
    ASSERT_TRUE(busy.connected());
  }
  // Three idle connections time out one after the other: the busy one saw every one of those times.
  for (int i = 0; i < 3; ++i) {
    RawClient idle = connect();
    EXPECT_EQ(idle.read_to_end(), "");
  }

  on_loop([&] { held.load()->respond(200, "", "still here"); });

  EXPECT_EQ(busy.read_response().value().body, "still here");
}

TEST_F(HttpLimitsTest, RefusesConnectionsBeyondTheLimit) {
  config.connections_max = 1;
  start_echo();
  RawClient first = connect();
  ASSERT_TRUE(first.send(get("/")));
  ASSERT_TRUE(first.read_response());

  RawClient second = connect();

  EXPECT_EQ(second.read_response().value().status, 503);
  EXPECT_EQ(second.read_to_end(), "");
  EXPECT_TRUE(metric_is("stator_http_rejected_total{reason=\"connections\"} 1"));
  first.close();
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
  RawClient third = connect();
  ASSERT_TRUE(third.send(get("/")));
  EXPECT_EQ(third.read_response().value().status, 200);
}

TEST_F(HttpLimitsTest, BacksOffWhenFilesRunOutAndRecovers) {
  start_echo();
  rlimit old = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  std::optional<RawClient> waiting;
  // The sanitizer checks the first virtual call of each type through a pipe, which it cannot open
  // when files have run out: log once before.
  log::info("net", "files run out on purpose");
  // On the loop, so that the limit falls between the client's connect and the server's accept.
  on_loop([&] {
    waiting.emplace(server->port());
    rlimit low = old;
    low.rlim_cur = static_cast<rlim_t>(waiting->fd()) + 1;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  });

  EXPECT_TRUE(eventually([&] { return !shows_metric("stator_http_accept_backoff_total 0"); }));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);

  ASSERT_TRUE(waiting->send(get("/")));
  EXPECT_EQ(waiting->read_response().value().status, 200);
}

}  // namespace
}  // namespace stator::net
