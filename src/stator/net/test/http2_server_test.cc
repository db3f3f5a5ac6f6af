// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <string>

#include "stator/net/test/http2_peer.h"
#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

/// A peer on a connection to the server of the fixture.
class Http2Client {
 public:
  explicit Http2Client(RawClient client, uint32_t window_bytes = 65535)
      : peer(window_bytes), client_(std::move(client)) {}

  bool send() { return client_.send(peer.output()); }
  bool send_raw(std::string_view bytes) { return client_.send(bytes); }
  /// Talks until `done`, or the server closes.
  bool until(const std::function<bool()>& done) {
    return eventually([&] {
      static_cast<void>(send());
      if (done()) {
        return true;
      }
      take();
      static_cast<void>(send());
      return done();
    });
  }
  Http2Peer::Answer& wait(int32_t id) {
    EXPECT_TRUE(until([&] { return peer.answer(id).ended || peer.answer(id).reset; }));
    return peer.answer(id);
  }
  bool closed() {
    return until([&] { return closed_; });
  }

  Http2Peer peer;

 private:
  /// What has come, without waiting.
  void take() {
    char bytes[16384];
    const ssize_t got = ::recv(client_.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
    closed_ = closed_ || got == 0;
    if (got > 0) {
      peer.receive({bytes, static_cast<size_t>(got)});
    }
  }

  RawClient client_;
  bool closed_ = false;
};

class Http2ServerTest : public HttpServerTest {
 protected:
  Http2Client connect2(uint32_t window_bytes = 65535) {
    return Http2Client(connect(), window_bytes);
  }
  void start_holding() {
    start([this](HttpExchange& exchange) {
      exchange.set_observer(&observer);
      held = &exchange;
    });
  }
  BodyRule body_rule(const HttpRequest& head) const override {
    if (head.path() == "/pieces") {
      return {.in_pieces = true};
    }
    return {.bytes_max = head.path() == "/small" ? size_t{10} : SIZE_MAX};
  }

  std::atomic<HttpExchange*> held = nullptr;
  GoneObserver observer;
};

TEST_F(Http2ServerTest, AnswersManyRequestsOfOneConnection) {
  start_echo();
  Http2Client client = connect2();

  const int32_t get_id = client.peer.ask("GET", "/a?b=c");
  const int32_t post_id = client.peer.ask("POST", "/d", "body");
  const int32_t head_id = client.peer.ask("HEAD", "/e");

  EXPECT_EQ(client.wait(get_id).body, "GET /a?b=c ");
  EXPECT_EQ(client.wait(post_id).body, "POST /d body");
  EXPECT_EQ(client.wait(post_id).fields[":status"], "200");
  EXPECT_EQ(client.wait(post_id).fields["content-length"], "12");
  EXPECT_EQ(client.wait(head_id).body, "");
  EXPECT_TRUE(metric_is("stator_http_requests_total 3"));
  EXPECT_TRUE(metric_is("stator_http2_connections_total 1"));
}

TEST_F(Http2ServerTest, ThePrefaceMayComeByteByByte) {
  start_echo();
  Http2Client client = connect2();
  const int32_t id = client.peer.ask("GET", "/slow");
  const std::string bytes = client.peer.output();

  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_TRUE(client.send_raw(bytes.substr(i, 1)));
    on_loop([] {});
  }

  EXPECT_EQ(client.wait(id).body, "GET /slow ");
}

TEST_F(Http2ServerTest, RequestsThatOnlyLookLikeThePrefaceAreHttp1) {
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send("P"));
  on_loop([] {});
  ASSERT_TRUE(client.send("OST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi"));
  EXPECT_EQ(client.read_response().value().body, "POST / hi");
}

TEST_F(Http2ServerTest, SwitchedOffThePrefaceIsRefused) {
  config.http2_streams_max = 0;
  start_echo();
  RawClient client = connect();
  ASSERT_TRUE(client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
  EXPECT_EQ(client.read_response().value().status, 505);
}

TEST_F(Http2ServerTest, StreamsComeAsTheyAreWritten) {
  start_holding();
  Http2Client client = connect2();
  const int32_t id = client.peer.ask("POST", "/", "x");
  ASSERT_TRUE(client.until([&] { return held != nullptr; }));

  on_loop([&] {
    held.load()->start_stream(200, "text/event-stream");
    held.load()->write("data: a\n\n");
  });
  ASSERT_TRUE(client.until([&] { return client.peer.answer(id).body == "data: a\n\n"; }));
  EXPECT_FALSE(client.peer.answer(id).ended);
  on_loop([&] {
    held.load()->write("data: b\n\n");
    const HttpHeader trailer{"grpc-status", "0"};
    held.load()->finish_with(std::span(&trailer, 1));
  });

  EXPECT_EQ(client.wait(id).body, "data: a\n\ndata: b\n\n");
  EXPECT_EQ(client.wait(id).fields["grpc-status"], "0");
  EXPECT_FALSE(client.wait(id).reset);
  EXPECT_EQ(observer.count, 0);
}

TEST_F(Http2ServerTest, ACancelledStreamIsToldToItsObserver) {
  start_holding();
  Http2Client client = connect2();
  const int32_t id = client.peer.ask("GET", "/");
  ASSERT_TRUE(client.until([&] { return held != nullptr; }));

  nghttp2_submit_rst_stream(client.peer.session(), NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
  ASSERT_TRUE(client.send());

  EXPECT_TRUE(eventually([&] { return observer.count == 1; }));
  EXPECT_EQ(server->open_exchanges(), 0U);
}

TEST_F(Http2ServerTest, AbortedStreamsAreReset) {
  start_holding();
  Http2Client client = connect2();
  const int32_t id = client.peer.ask("GET", "/");
  ASSERT_TRUE(client.until([&] { return held != nullptr; }));

  on_loop([&] {
    held.load()->start_stream(200, "text/plain");
    held.load()->write("half");
    held.load()->abort();
  });

  EXPECT_TRUE(client.wait(id).reset);
}

TEST_F(Http2ServerTest, LargeBodiesAndHeadsAreRefused) {
  start_echo();
  Http2Client client = connect2();
  const int32_t body = client.peer.ask("POST", "/small", "more than ten bytes");
  const int32_t head = client.peer.ask("GET", "/", {}, {{"x-large", std::string(40'000, 'x')}});

  EXPECT_EQ(client.wait(body).fields[":status"], "413");
  EXPECT_EQ(client.wait(head).fields[":status"], "431");
  const int32_t after = client.peer.ask("GET", "/after");
  EXPECT_EQ(client.wait(after).body, "GET /after ") << "the connection goes on";
}

TEST_F(Http2ServerTest, BodiesInPiecesAreToldAsTheyCome) {
  struct Pieces final : ExchangeObserver {
    void on_client_gone(ClientGone) override {}
    void on_body(std::string_view bytes) override { exchange->write(bytes); }
    void on_body_end() override { exchange->finish(); }
    HttpExchange* exchange = nullptr;
  };
  Pieces pieces;
  start([&](HttpExchange& exchange) {
    pieces.exchange = &exchange;
    exchange.set_observer(&pieces);
    exchange.start_stream(200, "text/plain");
  });
  Http2Client client = connect2();
  const int32_t id = client.peer.ask("POST", "/pieces", "all of it");

  EXPECT_EQ(client.wait(id).body, "all of it");
}

TEST_F(Http2ServerTest, AClientThatTakesNothingLosesItsStreamOnly) {
  config.slow_client_timeout = milliseconds(50);
  config.stream_buffer_bytes_max = 1024 * 1024;
  start([this](HttpExchange& exchange) {
    if (exchange.request().path() == "/quick") {
      return exchange.respond(200, "text/plain", "ok");
    }
    exchange.set_observer(&observer);
    exchange.start_stream(200, "text/plain");
    exchange.write(std::string(200'000, 'x'));
  });
  Http2Client client = connect2(0);
  const int32_t id = client.peer.ask("GET", "/");

  EXPECT_TRUE(client.until([&] { return client.peer.answer(id).reset; }));
  EXPECT_EQ(observer.last, ClientGone::kSlowReader);
  EXPECT_TRUE(metric_is("stator_http_slow_client_disconnects_total 1"));
  EXPECT_TRUE(metric_is("stator_budget_bytes{budget=\"output\"} 0"));
}

TEST_F(Http2ServerTest, StreamsMadeAndBrokenFasterThanAllowedEndTheConnection) {
  start_holding();
  Http2Client client = connect2();
  for (int i = 0; i < 1500; ++i) {
    const int32_t id = client.peer.ask("GET", "/");
    if (id < 0 || !client.send()) {
      break;
    }
    nghttp2_submit_rst_stream(client.peer.session(), NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    if (!client.send()) {
      break;
    }
  }

  EXPECT_TRUE(metric_is("stator_http_rejected_total{reason=\"http2_flood\"} 1"));
  EXPECT_TRUE(eventually([&] { return server->connection_count() == 0; }));
}

TEST_F(Http2ServerTest, PingsWithoutEndEndTheConnection) {
  start_echo();
  Http2Client client = connect2();
  ASSERT_TRUE(client.send());
  std::string pings;
  for (int i = 0; i < 20'000; ++i) {
    pings += std::string("\0\0\x08\x06\0\0\0\0\0", 9) + "12345678";
  }
  static_cast<void>(client.send_raw(pings));

  EXPECT_TRUE(metric_is("stator_http_rejected_total{reason=\"http2_flood\"} 1"));
}

TEST_F(Http2ServerTest, ADrainSaysGoodbyeAndAnswersWhatIsUnderWay) {
  start_holding();
  Http2Client client = connect2();
  const int32_t id = client.peer.ask("GET", "/");
  ASSERT_TRUE(client.until([&] { return held != nullptr; }));

  on_loop([this] { server->stop_accepting(); });
  on_loop([&] { held.load()->respond(200, "text/plain", "still answered"); });

  EXPECT_EQ(client.wait(id).body, "still answered");
  ASSERT_TRUE(client.until([&] { return client.peer.told_to_leave; }));
  EXPECT_EQ(client.peer.goodbye_error, 0U);
  EXPECT_TRUE(client.until([&] { return server->connection_count() == 0; }));
}

TEST_F(Http2ServerTest, ADrainTellsAClientThatGoesOnAsking) {
  start_holding();
  Http2Client client = connect2();
  const int32_t first = client.peer.ask("GET", "/");
  ASSERT_TRUE(client.until([&] { return held != nullptr; }));
  net::HttpExchange* const waiting = held.exchange(nullptr);

  on_loop([this] { server->stop_accepting(); });
  const int32_t second = client.peer.ask("GET", "/");
  ASSERT_TRUE(client.until([&] { return held != nullptr && client.peer.told_to_leave; }));
  on_loop([&] {
    waiting->respond(200, "text/plain", "one");
    held.load()->respond(200, "text/plain", "two");
  });

  EXPECT_EQ(client.wait(first).body, "one");
  EXPECT_EQ(client.wait(second).body, "two");
  EXPECT_TRUE(client.until([&] { return server->connection_count() == 0; }));
}

}  // namespace
}  // namespace stator::net
