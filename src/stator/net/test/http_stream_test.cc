// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

/// A server that hands its one exchange to the test.
class HttpStreamTest : public HttpServerTest {
 protected:
  void start_holding() {
    start([this](HttpExchange& exchange) {
      exchange.set_observer(&observer);
      held = &exchange;
    });
  }
  void request(RawClient& client, std::string_view bytes = "GET / HTTP/1.1\r\nhost: test\r\n\r\n") {
    held = nullptr;
    ASSERT_TRUE(client.send(bytes));
    ASSERT_TRUE(eventually([&] { return held != nullptr; }));
  }
  void start_stream() {
    on_loop([&] { held.load()->start_stream(200, "text/event-stream"); });
  }
  bool gone() {
    return eventually([&] { return observer.count > 0; });
  }

  std::atomic<HttpExchange*> held = nullptr;
  GoneObserver observer;
};

TEST_F(HttpStreamTest, SendsHeadThenChunksThenTheEnd) {
  start_holding();
  RawClient client = connect();
  request(client);

  start_stream();
  ASSERT_TRUE(client.read_until("transfer-encoding: chunked\r\n\r\n")) << "before the first token";
  on_loop([&] { held.load()->write("data: a\n\n"); });
  ASSERT_TRUE(client.read_until("9\r\ndata: a\n\n\r\n"));
  on_loop([&] { held.load()->finish(); });

  EXPECT_EQ(client.read_response().value().body, "data: a\n\n");
  request(client);
  on_loop([&] { held.load()->respond(200, "", "kept alive"); });
  EXPECT_EQ(client.read_response().value().body, "kept alive");
}

TEST_F(HttpStreamTest, OneTurnsWritesAreOneChunk) {
  start_holding();
  RawClient client = connect();
  request(client);

  on_loop([&] {
    HttpExchange& exchange = *held;
    exchange.start_stream(200, "text/event-stream");
    for (int i = 0; i < 20; ++i) {
      exchange.write("x");
    }
    exchange.write("");
    exchange.finish();
  });

  ASSERT_TRUE(client.read_until("\r\n\r\n14\r\nxxxxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n"));
}

TEST_F(HttpStreamTest, AStreamFlushedJustNowWaitsForTheTickUnlessItFinishes) {
  config.stream_flush_interval = std::chrono::hours(1);
  start_holding();
  RawClient client = connect();
  request(client);
  start_stream();
  ASSERT_TRUE(client.read_until("\r\n\r\n"));

  on_loop([&] { held.load()->write("one "); });
  on_loop([&] {
    EXPECT_EQ(held.load()->buffered_bytes(), 4U) << "waits";
    held.load()->write("two");
  });
  on_loop([&] { held.load()->finish(); });

  ASSERT_TRUE(client.read_until("7\r\none two\r\n0\r\n\r\n"));
}

TEST_F(HttpStreamTest, TheTickFlushesWhatWaited) {
  config.stream_flush_interval = milliseconds(20);
  start_holding();
  RawClient client = connect();
  request(client);
  start_stream();
  ASSERT_TRUE(client.read_until("\r\n\r\n"));

  on_loop([&] { held.load()->write("one "); });
  on_loop([&] { held.load()->write("two"); });

  EXPECT_TRUE(client.read_until("two"));
}

TEST_F(HttpStreamTest, Http10GetsAnUnframedStreamEndedByClose) {
  start_holding();
  RawClient client = connect();
  request(client, "GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");

  start_stream();
  on_loop([&] {
    held.load()->write("raw");
    held.load()->finish();
  });

  const std::string all = client.read_to_end();
  EXPECT_TRUE(all.ends_with("\r\n\r\nraw"));
  EXPECT_EQ(all.find("transfer-encoding"), std::string::npos);
  EXPECT_NE(all.find("connection: close\r\n"), std::string::npos);
}

TEST_F(HttpStreamTest, HeadGetsNoStreamBody) {
  start_holding();
  RawClient client = connect();
  request(client, "HEAD / HTTP/1.1\r\nhost: test\r\n\r\n");

  start_stream();
  on_loop([&] {
    held.load()->write("dropped");
    held.load()->finish();
  });

  ASSERT_TRUE(client.read_response(/*head_request=*/true));
  request(client);
  on_loop([&] { held.load()->respond(200, "", "next"); });
  EXPECT_EQ(client.read_response().value().body, "next");
}

TEST_F(HttpStreamTest, AbortEndsWithoutTheFinalChunk) {
  start_holding();
  RawClient client = connect();
  request(client);

  start_stream();
  on_loop([&] {
    held.load()->write("half");
    held.load()->abort();
  });

  EXPECT_TRUE(client.read_to_end().ends_with("4\r\nhalf\r\n"));
  EXPECT_EQ(observer.count, 0);
}

TEST_F(HttpStreamTest, TellsOnceThatAClientLeftMidStream) {
  start_holding();
  RawClient client = connect();
  request(client);
  start_stream();
  on_loop([&] { held.load()->write("token"); });
  ASSERT_TRUE(client.read_until("token"));

  client.close();

  ASSERT_TRUE(gone());
  EXPECT_EQ(observer.last, ClientGone::kDisconnected);
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
  EXPECT_EQ(observer.count, 1);
  EXPECT_TRUE(eventually([&] { return server->open_exchanges() == 0; }));
  EXPECT_TRUE(metric_is("stator_http_client_gone_total 1"));
}

TEST_F(HttpStreamTest, TellsThatAClientLeftBeforeTheFirstByte) {
  start_holding();
  RawClient client = connect();
  request(client);

  client.close();

  ASSERT_TRUE(gone());
  EXPECT_EQ(observer.last, ClientGone::kDisconnected);
}

TEST_F(HttpStreamTest, TellsThatAClientResetTheConnection) {
  start_holding();
  RawClient client = connect();
  request(client);
  start_stream();

  client.reset();

  ASSERT_TRUE(gone());
  EXPECT_EQ(observer.last, ClientGone::kDisconnected);
}

TEST_F(HttpStreamTest, ForgetsAnObserverThatWasRemoved) {
  start_holding();
  RawClient client = connect();
  request(client);
  on_loop([&] { held.load()->set_observer(nullptr); });

  client.close();

  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
  EXPECT_EQ(observer.count, 0);
}

TEST_F(HttpStreamTest, TellsNothingAfterTheAnswer) {
  start_holding();
  RawClient client = connect();
  request(client);
  on_loop([&] { held.load()->respond(200, "", "done"); });
  ASSERT_TRUE(client.read_response());

  client.close();

  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
  EXPECT_EQ(observer.count, 0);
}

TEST_F(HttpStreamTest, CloseAllEndsOpenExchanges) {
  start_holding();
  RawClient client = connect();
  request(client);
  start_stream();

  on_loop([&] { server->close_all(); });

  EXPECT_EQ(observer.count, 1);
  EXPECT_EQ(observer.last, ClientGone::kServerClosed);
  client.read_to_end();
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
}

TEST_F(HttpStreamTest, DropsAClientThatStaysAboveHighWater) {
  config.stream_high_water_bytes = 64 * 1024;
  config.slow_client_timeout = milliseconds(30);
  start_holding();
  RawClient client = connect(/*receive_buffer_bytes=*/4096);
  request(client);
  start_stream();
  bool above = false;

  on_loop([&] {
    held.load()->write(std::string(8UL * 1024 * 1024, 'x'));
    above = held.load()->above_high_water();
  });

  EXPECT_TRUE(above);
  ASSERT_TRUE(gone());
  EXPECT_EQ(observer.last, ClientGone::kSlowReader);
  EXPECT_EQ(observer.count, 1);
  EXPECT_TRUE(metric_is("stator_http_slow_client_disconnects_total 1"));
}

TEST_F(HttpStreamTest, DropsAClientBeyondTheStreamBuffer) {
  config.stream_buffer_bytes_max = 1024 * 1024;
  start_holding();
  RawClient client = connect(/*receive_buffer_bytes=*/4096);
  request(client);
  start_stream();

  on_loop([&] { held.load()->write(std::string(16UL * 1024 * 1024, 'x')); });

  ASSERT_TRUE(gone());
  EXPECT_EQ(observer.last, ClientGone::kSlowReader);
}

TEST_F(HttpStreamTest, AClientThatCatchesUpFallsBelowHighWaterAndGetsEverything) {
  config.stream_high_water_bytes = 64 * 1024;
  start_holding();
  RawClient client = connect(/*receive_buffer_bytes=*/4096);
  request(client);
  start_stream();
  constexpr size_t kBytes = 8UL * 1024 * 1024;
  on_loop([&] { held.load()->write(std::string(kBytes, 'x')); });
  bool above = false;
  on_loop([&] { above = held.load()->above_high_water(); });
  ASSERT_TRUE(above);

  while (client.received().size() < kBytes) {
    ASSERT_TRUE(client.read_some());
  }

  on_loop([&] {
    EXPECT_FALSE(held.load()->above_high_water());
    held.load()->write("last");
    held.load()->finish();
  });
  EXPECT_EQ(client.read_response().value().body.size(), kBytes + 4);
  EXPECT_EQ(observer.count, 0);
}

TEST_F(HttpStreamTest, DropsAClientThatTakesNothingOfAWholeAnswer) {
  config.slow_client_timeout = milliseconds(30);
  start_holding();
  RawClient client = connect(/*receive_buffer_bytes=*/4096);
  request(client);

  on_loop([&] { held.load()->respond(200, "", std::string(16UL * 1024 * 1024, 'x')); });

  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
  EXPECT_EQ(observer.count, 0);
  EXPECT_TRUE(metric_is("stator_http_slow_client_disconnects_total 1"));
}

}  // namespace
}  // namespace stator::net
