// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_streams.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

/// Collects what comes in, and can cancel from inside a callback.
class HttpStreamsTest : public HttpServerTest, protected HttpStreamsListener {
 protected:
  struct Seen {
    int heads = 0;
    int status = 0;
    std::string type;
    std::string body;
    int ends = 0;
    std::optional<Code> failed;
  };

  void SetUp() override {
    auto made = HttpStreams::create({.streams_max = 4}, *this, clock);
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    streams = std::move(*made);
  }
  std::string url(std::string_view path = "/") const {
    return "http://127.0.0.1:" + std::to_string(server->port()) + std::string(path);
  }
  HttpStreamId get(std::string_view path = "/") {
    const auto id = streams->start({.method = "POST", .url = url(path), .body = "b"}, {});
    EXPECT_TRUE(id.has_value());
    return id.value_or(0);
  }
  template <typename Condition>
  bool turn_until(Condition condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) {
      streams->turn(milliseconds(20));
    }
    return condition();
  }

  void on_head(HttpStreamId stream, int status, std::string_view type) override {
    ++seen[stream].heads;
    seen[stream].status = status;
    seen[stream].type = type;
    if (on_head_then) {
      on_head_then(stream);
    }
  }
  void on_bytes(HttpStreamId stream, std::string_view bytes) override {
    EXPECT_EQ(seen[stream].heads, 1) << "the head comes before the bytes";
    seen[stream].body += bytes;
    if (cancel_inside) {
      streams->cancel(stream);
    }
  }
  void on_end(HttpStreamId stream, Status status) override {
    ++seen[stream].ends;
    if (!status) {
      seen[stream].failed = status.error().code();
    }
  }

  std::unique_ptr<HttpStreams> streams;
  std::map<HttpStreamId, Seen> seen;
  bool cancel_inside = false;
  std::function<void(HttpStreamId)> on_head_then;
};

TEST_F(HttpStreamsTest, ManyExchangesAtOnceEachEndOnce) {
  start_echo();

  const HttpStreamId one = get("/one");
  const HttpStreamId two = get("/two");
  ASSERT_TRUE(turn_until([&] { return streams->running() == 0; }));

  EXPECT_EQ(seen[one].body, "POST /one b");
  EXPECT_EQ(seen[two].body, "POST /two b");
  for (const HttpStreamId id : {one, two}) {
    EXPECT_EQ(seen[id].heads, 1);
    EXPECT_EQ(seen[id].status, 200);
    EXPECT_EQ(seen[id].type, "text/plain");
    EXPECT_EQ(seen[id].ends, 1);
    EXPECT_EQ(seen[id].failed, std::nullopt);
  }
}

TEST_F(HttpStreamsTest, PinnedExchangesConnectToTheirAddressesAndNoOther) {
  start_echo();
  const auto get_from = [&](const std::string& host, std::vector<std::string> addresses) {
    const std::string asked = "http://" + host + ":" + std::to_string(server->port()) + "/x";
    const auto id = streams->start_pinned({.url = asked, .body = {}}, {}, std::move(addresses));
    EXPECT_TRUE(id.has_value());
    EXPECT_TRUE(turn_until([&] { return streams->running() == 0; }));
    return seen[id.value_or(0)];
  };

  EXPECT_EQ(get_from("nowhere.invalid", {"127.0.0.1"}).body, "GET /x ");
  EXPECT_EQ(get_from("127.0.0.1", {"127.0.0.1"}).body, "GET /x ");
  EXPECT_EQ(get_from("localhost", {"127.0.0.99"}).failed, Code::kUnavailable);
  EXPECT_EQ(get_from("127.0.0.1", {"127.0.0.99"}).failed, Code::kUnavailable);
}

TEST_F(HttpStreamsTest, HeadersCanBeAskedForOnceTheHeadIsThere) {
  start([](HttpExchange& exchange) {
    const HttpHeader header{"location", "/elsewhere"};
    exchange.respond(302, "text/plain", "", std::span(&header, 1));
  });
  const HttpStreamId id = get();
  std::string location;
  on_head_then = [&](HttpStreamId stream) { location = streams->header(stream, "Location"); };
  ASSERT_TRUE(turn_until([&] { return streams->running() == 0; }));
  EXPECT_EQ(seen[id].status, 302);
  EXPECT_EQ(location, "/elsewhere");
}

TEST_F(HttpStreamsTest, BytesComeWhileTheAnswerIsStillBeingWritten) {
  std::atomic<HttpExchange*> held = nullptr;
  start([&](HttpExchange& exchange) {
    exchange.start_stream(200, "text/event-stream");
    exchange.write("data: a\n\n");
    held = &exchange;
  });

  const HttpStreamId id = get();
  ASSERT_TRUE(turn_until([&] { return seen[id].body == "data: a\n\n"; }));
  EXPECT_EQ(seen[id].ends, 0);
  on_loop([&] { held.load()->finish(); });
  ASSERT_TRUE(turn_until([&] { return seen[id].ends == 1; }));
  EXPECT_EQ(seen[id].type, "text/event-stream");
}

TEST_F(HttpStreamsTest, CancelClosesTheConnectionAndNothingFollows) {
  GoneObserver observer;
  start([&](HttpExchange& exchange) {
    exchange.set_observer(&observer);
    exchange.start_stream(200, "text/event-stream");
    exchange.write("data: a\n\n");
  });

  const HttpStreamId outside = get();
  ASSERT_TRUE(turn_until([&] { return !seen[outside].body.empty(); }));
  streams->cancel(outside);
  EXPECT_TRUE(eventually([&] { return observer.count == 1; })) << "the server is told";
  cancel_inside = true;
  const HttpStreamId inside = get();
  ASSERT_TRUE(turn_until([&] { return streams->running() == 0; }));
  EXPECT_TRUE(eventually([&] { return observer.count == 2; }));
  EXPECT_EQ(seen[outside].ends + seen[inside].ends, 0);
}

TEST_F(HttpStreamsTest, AnAnswerCutShortIsDisconnected) {
  std::atomic<HttpExchange*> held = nullptr;
  start([&](HttpExchange& exchange) {
    exchange.start_stream(200, "text/event-stream");
    exchange.write("data: a\n\n");
    held = &exchange;
  });

  const HttpStreamId id = get();
  ASSERT_TRUE(turn_until([&] { return !seen[id].body.empty(); }));
  stop();
  ASSERT_TRUE(turn_until([&] { return seen[id].ends == 1; }));

  EXPECT_EQ(seen[id].failed, Code::kDisconnected);
}

TEST_F(HttpStreamsTest, NobodyListeningIsUnavailable) {
  start_echo();
  const std::string dead = url();
  stop();

  const auto id = streams->start({.url = dead}, {});
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(turn_until([&] { return seen[*id].ends == 1; }));

  EXPECT_EQ(seen[*id].failed, Code::kUnavailable);
  EXPECT_EQ(seen[*id].heads, 0);
}

TEST_F(HttpStreamsTest, OneMoreThanTheLimitIsRefused) {
  start([](HttpExchange& /*never answered*/) {});
  for (int i = 0; i < 4; ++i) {
    get();
  }

  const auto fifth = streams->start({.url = url()}, {});

  ASSERT_FALSE(fifth.has_value());
  EXPECT_EQ(fifth.error().code(), Code::kOverloaded);
}

TEST_F(HttpStreamsTest, ASilentServerIsADeadline) {
  start([](HttpExchange& /*never answered*/) {});

  const auto id = streams->start({.url = url()}, {.timeout = milliseconds(50)});
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(turn_until([&] { return seen[*id].ends == 1; }));

  EXPECT_EQ(seen[*id].failed, Code::kDeadline);
}

TEST_F(HttpStreamsTest, WakeEndsTheWait) {
  start_echo();
  streams->wake();

  streams->turn(std::chrono::hours(1));  // would hang otherwise

  EXPECT_EQ(streams->running(), 0U);
}

}  // namespace
}  // namespace stator::net
