// SPDX-License-Identifier: Apache-2.0
#include "stator/net/shared_port.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/net/detail/unix_socket.h"
#include "stator/net/http_port.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/net/test/raw_client.h"

namespace stator::net {
namespace {

/// What one process has: a shard, and a port whose server answers with its name.
struct Process : HttpHandler {
  Process(std::string name_in, uint16_t number, PortJoin join, uint32_t shard_count = 1)
      : name(std::move(name_in)), shards(shard_count, clock, metrics) {
    HttpServerConfig config;
    config.host = "127.0.0.1";
    config.port = number;
    const std::vector<HttpHandler*> handlers(shard_count, this);
    auto opened = HttpPort::open(shards, config, handlers, metrics, join);
    error = opened ? "" : opened.error().message();
    if (opened) {
      port = std::move(*opened);
      shards.start();
      port->start();
    }
  }
  ~Process() override {
    port.reset();
    shards.stop();
  }
  void on_request(HttpExchange& exchange) override { exchange.respond(200, "", name); }

  std::string name;
  std::string error;
  SystemClock clock;
  Metrics metrics;
  ShardSet shards;
  std::unique_ptr<HttpPort> port;
};

std::string ask(RawClient& client) {
  EXPECT_TRUE(client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto answer = client.read_response();
  return answer ? answer->body : "nobody";
}
std::string ask(uint16_t port) {
  RawClient client(port);
  return ask(client);
}

TEST(HttpPort, AQueueOutlivesTheProcessThatBoundThePort) {
  auto first = std::make_unique<Process>("first", 0, PortJoin::kNo, 3);
  const uint16_t number = first->port->port();
  auto second = std::make_unique<Process>("second", number, PortJoin::kYes);
  ASSERT_EQ(second->error, "");
  EXPECT_FALSE(first->port->joined());
  EXPECT_TRUE(second->port->joined());
  first->port->drain();

  RawClient early(number);  // nobody accepts: it waits in a queue
  ASSERT_TRUE(early.connected());
  first.reset();
  second->port->accept();

  EXPECT_EQ(ask(early), "second");
  for (int i = 0; i < 16; ++i) {  // whichever of the three sockets it comes to
    EXPECT_EQ(ask(number), "second");
  }
}

TEST(HttpPort, TheNextInLineBecomesItsHead) {
  auto first = std::make_unique<Process>("first", 0, PortJoin::kNo);
  const uint16_t number = first->port->port();
  EXPECT_FALSE(first->port->others_accept());
  auto second = std::make_unique<Process>("second", number, PortJoin::kYes, 2);
  EXPECT_TRUE(second->port->others_accept()) << "the head does";
  EXPECT_FALSE(first->port->others_accept()) << "it has joined, but does not accept";
  second->port->accept();
  EXPECT_TRUE(eventually([&] { return first->port->others_accept(); }));

  first.reset();
  EXPECT_TRUE(eventually([&] { return !second->port->others_accept(); }));
  auto third = std::make_unique<Process>("third", number, PortJoin::kYes);
  ASSERT_EQ(third->error, "");
  third->port->accept();
  EXPECT_TRUE(eventually([&] { return second->port->others_accept(); }));
  second.reset();

  EXPECT_EQ(ask(number), "third");
}

TEST(HttpPort, OneThatLeavesToOthersAnswersItsClientsAndSendsThemAway) {
  Process first("first", 0, PortJoin::kNo);
  Process second("second", first.port->port(), PortJoin::kYes);
  RawClient kept(first.port->port());
  EXPECT_EQ(ask(kept), "first");
  second.port->accept();
  ASSERT_TRUE(eventually([&] { return first.port->others_accept(); }));

  EXPECT_TRUE(first.port->leave());

  EXPECT_EQ(ask(first.port->port()), "second");
  ASSERT_TRUE(kept.send("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  const auto answer = kept.read_response();
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->has("connection: close\r\n")) << "another request is here already";
  const auto last = kept.read_response();
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->has("connection: close\r\n"));
  EXPECT_EQ(kept.read_to_end(), "");
  EXPECT_TRUE(eventually([&] { return first.port->connections() == 0; }));
}

TEST(HttpPort, WithoutJoiningATakenPortIsAnError) {
  Process first("first", 0, PortJoin::kNo);

  const Process second("second", first.port->port(), PortJoin::kNo);

  EXPECT_NE(second.error.find("--port"), std::string::npos) << second.error;
}

TEST(HttpPort, JoiningAPortThatNobodyHasBindsIt) {
  uint16_t number = 0;
  {
    const Process probe("probe", 0, PortJoin::kNo);
    number = probe.port->port();
  }
  Process alone("alone", number, PortJoin::kYes);
  ASSERT_EQ(alone.error, "");
  EXPECT_FALSE(alone.port->joined());

  EXPECT_EQ(ask(number), "alone");
}

TEST(HttpPort, AStrangerOnThePortHandsNothingOut) {
  SystemClock clock;
  Metrics metrics;
  ShardSet shards(1, clock, metrics);
  HttpServerConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  struct Silent : HttpHandler {
    void on_request(HttpExchange& exchange) override { exchange.respond(200, "", ""); }
  } silent;
  auto stranger = HttpServer::listen(shards.shard(0), config, silent, metrics);
  ASSERT_TRUE(stranger.has_value());

  const Process joiner("joiner", (*stranger)->port(), PortJoin::kYes);

  EXPECT_NE(joiner.error.find("in use"), std::string::npos) << joiner.error;
}

TEST(SharedPort, DescriptorsThatAreNoListenersAreRefused) {
  const auto bound = detail::bind_unix("stator-test-" + std::to_string(::getpid()));
  ASSERT_TRUE(bound.has_value());
  EXPECT_EQ(detail::listening_port(bound->get()).error().code(), Code::kInvalidArgument);
  const auto again = detail::bind_unix("stator-test-" + std::to_string(::getpid()));
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  EXPECT_EQ(detail::connect_unix("stator-test-nobody").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace stator::net
