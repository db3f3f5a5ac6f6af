// SPDX-License-Identifier: Apache-2.0
// What many clients together may make the server keep.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/net/detail/rate_watch.h"
#include "stator/net/test/http_server_fixture.h"

namespace stator::net {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class HttpBudgetTest : public HttpServerTest {
 protected:
  BodyRule body_rule(const HttpRequest& head) const override {
    return head.path() == "/small" ? BodyRule{.bytes_max = 10}
           : head.path() == "/none"
               ? BodyRule{.bytes_max = 0, .status = 404, .message = "nothing is served here"}
               : BodyRule{};
  }
  void start_sizes() {
    start([](HttpExchange& exchange) {
      exchange.respond(200, "", std::to_string(exchange.request().body().size()));
    });
  }
  /// A client that sends `bytes` of a body, and has one more to send.
  RawClient hold_back(size_t bytes) {
    RawClient client = connect();
    EXPECT_TRUE(client.send("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: " +
                            std::to_string(bytes + 1) + "\r\n\r\n"));
    EXPECT_TRUE(client.send(std::string(bytes, 'x')));
    return client;
  }
  bool held(std::string_view budget, size_t bytes) const {
    return metric_is("stator_budget_bytes{budget=\"" + std::string(budget) + "\"} " +
                     std::to_string(bytes));
  }
};

TEST_F(HttpBudgetTest, BodiesOnTheirWayInAreCountedUntilTheyAreAnswered) {
  config.bodies_bytes_max = 8 * kMiB;
  std::atomic<HttpExchange*> open = nullptr;
  start([&](HttpExchange& exchange) { open = &exchange; });
  RawClient client = hold_back(kMiB);
  ASSERT_TRUE(held("request_bodies", kMiB)) << metrics.render();

  ASSERT_TRUE(client.send("x"));
  ASSERT_TRUE(eventually([&] { return open != nullptr; }));
  EXPECT_TRUE(held("request_bodies", kMiB + ByteBudget::kFreeBytes)) << "charged in whole steps";
  on_loop([&] { open.load()->respond(200, "", "done"); });

  EXPECT_EQ(client.read_response().value().body, "done");
  EXPECT_TRUE(held("request_bodies", 0));
}

TEST_F(HttpBudgetTest, AHandlerKeepsThePlaceOfABodyThatItTakes) {
  config.bodies_bytes_max = 8 * kMiB;
  ByteLease kept;
  start([&](HttpExchange& exchange) {
    kept = exchange.take_body_lease();
    exchange.respond(200, "", "done");
  });
  RawClient client = connect();
  ASSERT_TRUE(client.send(post("/", std::string(kMiB, 'x'))));
  ASSERT_TRUE(client.read_response());

  EXPECT_TRUE(held("request_bodies", kMiB));
  on_loop([&] { kept.release(); });
  EXPECT_TRUE(held("request_bodies", 0));
}

TEST_F(HttpBudgetTest, TheLargestBodyMakesRoomForSmallerOnes) {
  config.bodies_bytes_max = 4 * kMiB;
  start_sizes();
  RawClient large = hold_back(3 * kMiB);
  ASSERT_TRUE(held("request_bodies", 3 * kMiB));

  RawClient other = connect();
  ASSERT_TRUE(other.send(post("/", std::string(kMiB, 'x'))));

  EXPECT_EQ(other.read_response().value().body, std::to_string(kMiB));
  const auto refused = large.read_response();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_TRUE(refused->has("retry-after: 1\r\n")) << refused->head;
  EXPECT_NE(refused->body.find("http.bodies_bytes_max"), std::string::npos);
  EXPECT_TRUE(metric_is("stator_budget_refused_total{budget=\"request_bodies\"} 1"));
  EXPECT_TRUE(metric_is("stator_http_rejected_total{reason=\"budget\"} 1"));
}

TEST_F(HttpBudgetTest, ABodyLargerThanAllOthersIsTheOneThatIsRefused) {
  config.bodies_bytes_max = 4 * kMiB;
  start_sizes();
  RawClient smaller = hold_back(kMiB);
  ASSERT_TRUE(held("request_bodies", kMiB));

  RawClient larger = hold_back(3 * kMiB);

  EXPECT_EQ(larger.read_response().value().status, 503);
  ASSERT_TRUE(smaller.send("x"));
  EXPECT_EQ(smaller.read_response().value().body, std::to_string(kMiB + 1));
}

TEST_F(HttpBudgetTest, SmallBodiesGetThroughWhateverLargeOnesHold) {
  config.bodies_bytes_max = 8 * kMiB;
  start_sizes();
  std::vector<RawClient> large;
  for (int i = 0; i < 20; ++i) {
    large.push_back(hold_back(2 * kMiB));
    RawClient small = connect();
    ASSERT_TRUE(small.send(post("/", std::string(60'000, 'x'))));
    ASSERT_EQ(small.read_response().value().body, "60000") << i;
  }
  EXPECT_FALSE(shows_metric("stator_budget_refused_total{budget=\"request_bodies\"} 0"));
}

TEST_F(HttpBudgetTest, ChunkedBodiesAreCountedAsTheyCome) {
  config.bodies_bytes_max = 4 * kMiB;
  start_sizes();
  RawClient client = connect();
  ASSERT_TRUE(
      client.send("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n400000\r\n"));
  static_cast<void>(client.send(std::string(4 * kMiB, 'x')));

  EXPECT_EQ(client.read_response().value().status, 503);
  EXPECT_TRUE(held("request_bodies", 0));
}

TEST_F(HttpBudgetTest, HeadsThatHaveNotComeWholeAreCounted) {
  config.bodies_bytes_max = 256 * 1024;
  start_sizes();
  const std::string head =
      "GET / HTTP/1.1\r\nhost: test\r\nx: " + std::string(20'000, 'x') + "\r\n";
  std::vector<RawClient> slow;  // none of them sends the empty line at the end
  for (int i = 0; i < 8; ++i) {
    slow.push_back(connect());
    ASSERT_TRUE(slow.back().send(head));
  }
  ASSERT_TRUE(held("request_bodies", 256 * 1024)) << metrics.render();

  RawClient ninth = connect();
  ASSERT_TRUE(ninth.send(head));
  EXPECT_EQ(ninth.read_response().value().status, 503);
  RawClient small = connect();  // up to 16 KiB are free
  ASSERT_TRUE(small.send(post("/", "1234")));
  EXPECT_EQ(small.read_response().value().body, "4");
  ASSERT_TRUE(slow.front().send("\r\n"));
  EXPECT_EQ(slow.front().read_response().value().body, "0");
  EXPECT_TRUE(held("request_bodies", 7 * 32 * 1024)) << metrics.render();
}

TEST_F(HttpBudgetTest, AClientThatLeavesGivesItsRoomBack) {
  start_sizes();
  {
    const RawClient client = hold_back(2 * kMiB);
    ASSERT_TRUE(held("request_bodies", 2 * kMiB));
  }
  EXPECT_TRUE(held("request_bodies", 0));
}

TEST_F(HttpBudgetTest, ARuleRefusesABodyBeforeItIsRead) {
  start_sizes();
  RawClient small = connect();
  ASSERT_TRUE(small.send("POST /small HTTP/1.1\r\nhost: test\r\ncontent-length: 11\r\n\r\n"));
  const auto refused = small.read_response();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 413);
  EXPECT_NE(refused->body.find("larger than 10 bytes"), std::string::npos) << refused->body;

  RawClient none = connect();
  ASSERT_TRUE(
      none.send("POST /none HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n"
                "5\r\nhello\r\n0\r\n\r\n"));
  const auto unknown = none.read_response();
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->status, 404);
  EXPECT_NE(unknown->body.find("nothing is served here"), std::string::npos) << unknown->body;

  RawClient fits = connect();
  ASSERT_TRUE(fits.send(post("/small", "0123456789")));
  EXPECT_EQ(fits.read_response().value().body, "10");
}

TEST_F(HttpBudgetTest, ABodyHasAnEndOfTimeWhateverItsSize) {
  config.body_timeout = std::chrono::hours(1);
  config.body_time_max = std::chrono::milliseconds(20);
  start_sizes();
  RawClient client = hold_back(2 * kMiB);

  EXPECT_EQ(client.read_response().value().status, 408);
}

TEST_F(HttpBudgetTest, WhoPipelinesTooMuchIsDisconnectedAndItsWorkEnds) {
  std::atomic<HttpExchange*> open = nullptr;
  GoneObserver observer;
  start([&](HttpExchange& exchange) {
    exchange.set_observer(&observer);
    open = &exchange;
  });
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/")));
  ASSERT_TRUE(eventually([&] { return open != nullptr; }));

  static_cast<void>(client.send(std::string(2 * kMiB, 'x')));

  EXPECT_TRUE(eventually([&] { return observer.count == 1; }));
  EXPECT_TRUE(metric_is("stator_http_rejected_total{reason=\"pipelined\"} 1"));
}

TEST_F(HttpBudgetTest, PipelinedBytesNeedRoomInTheBudget) {
  config.bodies_bytes_max = 128 * 1024;
  std::atomic<HttpExchange*> open = nullptr;
  GoneObserver observer;
  start([&](HttpExchange& exchange) {
    exchange.set_observer(&observer);
    open = &exchange;
  });
  RawClient client = connect();
  ASSERT_TRUE(client.send(get("/")));
  ASSERT_TRUE(eventually([&] { return open != nullptr; }));

  ASSERT_TRUE(client.send(std::string(60'000, 'x')));
  ASSERT_TRUE(held("request_bodies", 64 * 1024));
  EXPECT_EQ(observer.count, 0);
  static_cast<void>(client.send(std::string(140'000, 'x')));

  EXPECT_TRUE(eventually([&] { return observer.count == 1; }));
  EXPECT_TRUE(held("request_bodies", 0));
}

TEST_F(HttpBudgetTest, AClientThatLeavesBehindPipelinedBytesIsNoticed) {
  std::atomic<HttpExchange*> open = nullptr;
  GoneObserver observer;
  start([&](HttpExchange& exchange) {
    exchange.set_observer(&observer);
    open = &exchange;
  });
  {
    RawClient client = connect();
    ASSERT_TRUE(client.send(get("/") + std::string(140'000, 'x')));
    ASSERT_TRUE(eventually([&] { return open != nullptr; }));
  }
  EXPECT_TRUE(eventually([&] { return observer.count == 1; }));
}

TEST_F(HttpBudgetTest, ManyPipelinedRequestsAreAnsweredInOrder) {
  start([](HttpExchange& exchange) {
    exchange.respond(200, "", std::string(exchange.request().target()));
  });
  RawClient client = connect();
  std::string all;
  for (int i = 0; i < 3000; ++i) {
    all += get("/" + std::to_string(i));
  }
  ASSERT_TRUE(client.send(all));

  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(client.read_response().value().body, "/" + std::to_string(i));
  }
}

TEST_F(HttpBudgetTest, TheClientWithMostUnreadOutputGoesFirst) {
  config.output_bytes_max = 12 * kMiB;
  std::vector<HttpExchange*> open;
  std::vector<GoneObserver> observers(4);
  std::atomic<size_t> count = 0;
  start([&](HttpExchange& exchange) {
    exchange.set_observer(&observers[open.size()]);
    exchange.start_stream(200, "");
    open.push_back(&exchange);
    count = open.size();
  });
  std::vector<RawClient> clients;
  for (size_t i = 0; i < 4; ++i) {
    clients.push_back(connect(/*receive_buffer_bytes=*/4096));
    ASSERT_TRUE(clients.back().send(get("/")));
    ASSERT_TRUE(eventually([&] { return count == i + 1; }));
  }

  // The kernel takes some megabytes of each; the third holds most, the first two a little.
  on_loop([&] {
    open[0]->write(std::string(kMiB, 'a'));
    open[1]->write(std::string(5 * kMiB, 'b'));
    open[2]->write(std::string(14 * kMiB, 'c'));
    open[3]->write(std::string(5 * kMiB, 'd'));
  });

  EXPECT_TRUE(eventually([&] { return observers[2].count == 1; }));
  EXPECT_EQ(observers[2].last, ClientGone::kSlowReader);
  EXPECT_EQ(observers[0].count + observers[1].count + observers[3].count, 0);
  EXPECT_TRUE(metric_is("stator_budget_refused_total{budget=\"output\"} 1"));
  on_loop([&] {
    for (const size_t i : {0, 1, 3}) {
      open[i]->set_observer(nullptr);
      open[i]->finish();
    }
  });
  EXPECT_EQ(clients[1].read_response().value().body.size(), 5 * kMiB);
  clients.clear();
  EXPECT_TRUE(held("output", 0));
}

TEST(RateWatch, IsContentWithTheMeanOfAWindow) {
  const TimePoint t;
  detail::RateWatch watch;
  watch.start(t);
  EXPECT_FALSE(watch.too_slow(t + std::chrono::seconds(19), 0, 100)) << "the window is not over";
  EXPECT_FALSE(watch.too_slow(t + std::chrono::seconds(20), 2000, 100));
  EXPECT_FALSE(watch.too_slow(t + std::chrono::seconds(30), 2000, 100));
  EXPECT_TRUE(watch.too_slow(t + std::chrono::seconds(40), 3999, 100));
}

TEST(RateWatch, WithoutAMinimumNothingIsTooSlow) {
  const TimePoint t;
  detail::RateWatch watch;
  watch.start(t);
  EXPECT_FALSE(watch.too_slow(t + std::chrono::hours(1), 0, 0));
}

}  // namespace
}  // namespace stator::net
