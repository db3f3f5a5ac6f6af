// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_server.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/net/client_origin.h"
#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  start_echo();
  RawClient client = connect();

  for (const char* target : {"/one", "/two?x=1"}) {
    ASSERT_TRUE(client.send(get(target)));
    const auto response = client.read_response();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "GET " + std::string(target) + " ");
    EXPECT_TRUE(response->has("content-type: text/plain\r\n"));
    EXPECT_TRUE(response->has("\r\ndate: "));
    EXPECT_FALSE(response->has("connection:"));
  }
  EXPECT_TRUE(metric_is("stator_http_requests_total 2"));
  EXPECT_EQ(server->connection_count(), 1U);
  EXPECT_TRUE(eventually([&] { return server->open_exchanges() == 0; }));
}

TEST_F(HttpServerTest, KnowsClientsOfThisHostUnlessAProxyAsksForOthers) {
  start([](HttpExchange& exchange) {
    exchange.respond(200, "text/plain", client_is_local(exchange) ? "here" : "elsewhere");
  });
  RawClient client = connect();

  ASSERT_TRUE(client.send(get("/")));
  EXPECT_EQ(client.read_response().value().body, "here");
  for (const char* header :
       {"X-Forwarded-For: 127.0.0.1", "Forwarded: for=10.0.0.1", "Via: 1.1 x"}) {
    ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nHost: x\r\n" + std::string(header) + "\r\n\r\n"));
    EXPECT_EQ(client.read_response().value().body, "elsewhere") << header;
  }
}

TEST_F(HttpServerTest, ReadsARequestSentByteByByte) {
  start_echo();
  RawClient client = connect();

  for (const char c : post("/bytes", "hello")) {
    ASSERT_TRUE(client.send({&c, 1}));
  }

  const auto response = client.read_response();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->body, "POST /bytes hello");
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start_echo();
  RawClient client = connect();

  ASSERT_TRUE(client.send(get("/1") + post("/2", "body") + get("/3")));

  EXPECT_EQ(client.read_response().value().body, "GET /1 ");
  EXPECT_EQ(client.read_response().value().body, "POST /2 body");
  EXPECT_EQ(client.read_response().value().body, "GET /3 ");
}

TEST_F(HttpServerTest, KeepsAPipelinedRequestWhileAnotherIsAnswered) {
  std::atomic<HttpExchange*> held = nullptr;
  start([&](HttpExchange& exchange) {
    if (exchange.request().path() == "/hold") {
      held = &exchange;
    } else {
      exchange.respond(200, "", "second");
    }
  });
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(eventually([&] { return held != nullptr; }));
  ASSERT_TRUE(client.send(get("/next")));

  on_loop([&] { held.load()->respond(200, "", "first"); });

  EXPECT_EQ(client.read_response().value().body, "first");
  EXPECT_EQ(client.read_response().value().body, "second");
}

TEST_F(HttpServerTest, KeepsPipelinedInputBeyondTheStashInTheSocket) {
  std::atomic<HttpExchange*> held = nullptr;
  start([&](HttpExchange& exchange) {
    if (exchange.request().path() == "/hold") {
      held = &exchange;
    } else {
      exchange.respond(200, "", std::to_string(exchange.request().body().size()));
    }
  });
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/hold")));
  ASSERT_TRUE(eventually([&] { return held != nullptr; }));
  ASSERT_TRUE(client.send(post("/large", std::string(300'000, 'x'))));

  on_loop([&] { held.load()->respond(200, "", "first"); });

  EXPECT_EQ(client.read_response().value().body, "first");
  EXPECT_EQ(client.read_response().value().body, "300000");
}

TEST_F(HttpServerTest, ReadsChunkedBodiesAndDropsTrailers) {
  start([](HttpExchange& exchange) {
    EXPECT_EQ(exchange.request().header("x-late"), std::nullopt);
    exchange.respond(200, "", exchange.request().body());
  });
  RawClient client = connect();

  ASSERT_TRUE(
      client.send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
                  "5\r\nhello\r\n7;note=x\r\n, world\r\n0\r\nx-late: 1\r\n\r\n"));

  EXPECT_EQ(client.read_response().value().body, "hello, world");
}

TEST_F(HttpServerTest, ReadsABodyLargerThanItsReadBuffer) {
  start([](HttpExchange& exchange) {
    std::string body = exchange.request().take_body();
    EXPECT_TRUE(exchange.request().body().empty());
    exchange.respond(200, "", body);
  });
  RawClient client = connect();
  std::string body(3'000'000, 'a');
  for (size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<char>('a' + i % 26);
  }

  ASSERT_TRUE(client.send(post("/", body)));

  EXPECT_EQ(client.read_response().value().body, body);
}

TEST_F(HttpServerTest, InvitesTheBodyOfARequestThatExpectsIt) {
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send(
      "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"));

  EXPECT_EQ(client.read_response().value().status, 100);
  ASSERT_TRUE(client.send("ok"));

  EXPECT_EQ(client.read_response().value().body, "POST / ok");
}

TEST_F(HttpServerTest, DoesNotInviteABodyThatIsAlreadyThere) {
  start_echo();
  RawClient client = connect();

  ASSERT_TRUE(client.send(
      "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\nok"));

  EXPECT_EQ(client.read_response().value().status, 200);
}

TEST_F(HttpServerTest, AnswersHeadWithoutABody) {
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send("HEAD /x HTTP/1.1\r\nhost: test\r\n\r\n"));

  const auto response = client.read_response(/*head_request=*/true);

  ASSERT_TRUE(response);
  EXPECT_TRUE(response->has("content-length: 8\r\n"));
  ASSERT_TRUE(client.send(get("/y")));
  EXPECT_EQ(client.read_response().value().body, "GET /y ");
}

TEST_F(HttpServerTest, PassesOptionsAndUnknownMethodsToTheHandler) {
  start_echo();
  RawClient client = connect();

  ASSERT_TRUE(client.send("OPTIONS * HTTP/1.1\r\nhost: test\r\n\r\n"));
  EXPECT_EQ(client.read_response().value().body, "OPTIONS * ");
  ASSERT_TRUE(client.send("BREW /pot HTTP/1.1\r\nhost: test\r\n\r\n"));
  EXPECT_EQ(client.read_response().value().body, "BREW /pot ");
}

TEST_F(HttpServerTest, Sends204WithoutLengthOrBody) {
  start([](HttpExchange& exchange) { exchange.respond(204, "", "ignored"); });
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/")));

  const auto response = client.read_response();

  ASSERT_TRUE(response);
  EXPECT_FALSE(response->has("content-length"));
  EXPECT_FALSE(response->has("transfer-encoding"));
  EXPECT_EQ(client.received(), "");
}

TEST_F(HttpServerTest, ClosesWhenTheClientAsks) {
  start_echo();
  RawClient client = connect();

  ASSERT_TRUE(client.send("GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"));

  EXPECT_TRUE(client.read_response().value().has("connection: close\r\n"));
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  start_echo();
  RawClient closing = connect();
  ASSERT_TRUE(closing.send("GET /old HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(closing.read_response().value().has("connection: close\r\n"));
  EXPECT_EQ(closing.read_to_end(), "");

  RawClient keeping = connect();
  ASSERT_TRUE(keeping.send("GET /old HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"));
  EXPECT_TRUE(keeping.read_response().value().has("connection: keep-alive\r\n"));
  ASSERT_TRUE(keeping.send("GET /again HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(keeping.read_response().value().body, "GET /again ");
}

TEST_F(HttpServerTest, KeepsAHeaderValueFromStartingANewHeader) {
  start([](HttpExchange& exchange) {
    const HttpHeader header{"x-id", "a\r\nx-evil: 1"};
    exchange.respond(200, "", "", {&header, 1});
  });
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/")));

  EXPECT_TRUE(client.read_response().value().has("x-id: a  x-evil: 1\r\n"));
}

TEST_F(HttpServerTest, TellsWhichAddressIsTakenAndWhatToChange) {
  start_echo();
  HttpServerConfig same = config;
  same.port = server->port();

  const auto second = HttpServer::listen(shards.shard(0), same, *this, metrics);

  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_NE(second.error().message().find("127.0.0.1:" + std::to_string(same.port)),
            std::string::npos);
  EXPECT_NE(second.error().message().find("choose another with --port"), std::string::npos);
}

TEST_F(HttpServerTest, RefusesAHostThatIsNoAddress) {
  config.host = "no-such-host";
  const auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_NE(made.error().message().find("--host"), std::string::npos);
}

TEST_F(HttpServerTest, DrainingAnswersWhatItHasAndClosesTheRest) {
  std::atomic<HttpExchange*> held = nullptr;
  start([&](HttpExchange& exchange) {
    if (exchange.request().path() == "/hold") {
      held = &exchange;
    } else {
      exchange.respond(200, "", "done");
    }
  });
  RawClient busy = connect();
  ASSERT_TRUE(busy.send(get("/hold")));
  RawClient idle = connect();
  ASSERT_TRUE(idle.send(get("/")));
  ASSERT_TRUE(idle.read_response());
  ASSERT_TRUE(eventually([&] { return held != nullptr; }));

  on_loop([&] { server->stop_accepting(); });

  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_FALSE(connect().connected());
  EXPECT_EQ(server->open_exchanges(), 1U);
  on_loop([&] { held.load()->respond(200, "", "last"); });
  const auto last = busy.read_response();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->body, "last");
  EXPECT_TRUE(last->has("connection: close\r\n"));
  EXPECT_EQ(busy.read_to_end(), "");
  EXPECT_TRUE(eventually([&] { return server->open_exchanges() == 0; }));
}

TEST_F(HttpServerTest, DrainingAnswersARequestThatTheLoopHasNotSeenYet) {
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/first")));
  ASSERT_TRUE(client.read_response());

  on_loop([&] {
    client.send(get("/second"));
    server->stop_accepting();
  });

  const auto second = client.read_response();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->body, "GET /second ");
  EXPECT_TRUE(second->has("connection: close\r\n"));
  EXPECT_EQ(client.read_to_end(), "");
}

TEST_F(HttpServerTest, AnswersAClientThatHasShutItsSendingSide) {
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/half")));
  client.shutdown_write();

  const auto response = client.read_response();

  // The end of input may overtake the answer only while a handler still works on it.
  ASSERT_TRUE(response);
  EXPECT_EQ(response->body, "GET /half ");
  EXPECT_EQ(client.read_to_end(), "");
}

struct MultiShard : testing::Test, HttpHandler {
  void on_request(HttpExchange& exchange) override {
    exchange.respond(200, "", std::to_string(exchange.shard().index()));
  }
  SystemClock clock;
  Metrics metrics;
  ShardSet shards{2, clock, metrics};
};

TEST_F(MultiShard, ShareOnePort) {
  HttpServerConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  HttpHandler* const handlers[] = {this, this};
  auto servers = HttpServer::listen_on_all(shards, config, handlers, metrics);
  ASSERT_TRUE(servers.has_value()) << servers.error().to_string();
  EXPECT_EQ((*servers)[0]->port(), (*servers)[1]->port());
  shards.start();

  // The kernel spreads by hash of the client's port: 64 clients all on one shard is 1 in 2^63.
  size_t on_first = 0;
  for (int i = 0; i < 64; ++i) {
    RawClient client((*servers)[0]->port());
    ASSERT_TRUE(client.send(get("/")));
    on_first += client.read_response().value().body == "0" ? 1U : 0U;
  }

  EXPECT_GT(on_first, 0U);
  EXPECT_LT(on_first, 64U);
  shards.stop();
  servers->clear();
}

}  // namespace
}  // namespace stator::net
