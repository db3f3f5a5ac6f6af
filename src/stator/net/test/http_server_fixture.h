// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/net/test/raw_client.h"

namespace stator::net {

/// A real server on a loopback port whose handler is a function the test chooses.
class HttpServerTest : public testing::Test, protected HttpHandler {
 protected:
  HttpServerTest() {
    config.host = "127.0.0.1";
    config.port = 0;
  }
  // Here, not in the destructor: the loop still calls virtual functions of the derived test.
  void TearDown() override { stop(); }

  void start(std::function<void(HttpExchange&)> handler) {
    handler_ = std::move(handler);
    auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    server = std::move(*made);
    shards.start();
  }
  /// Answers every request with its method, target and body.
  void start_echo() {
    start([](HttpExchange& exchange) {
      const HttpRequest& request = exchange.request();
      exchange.respond(200, "text/plain",
                       std::string(request.method()) + " " + std::string(request.target()) + " " +
                           request.body());
    });
  }
  void stop() {
    on_loop([this] { server.reset(); });
    shards.stop();
  }

  void on_loop(std::function<void()> task) {
    ASSERT_TRUE(shards.shard(0).run_and_wait([&] { task(); }));
  }
  RawClient connect(int receive_buffer_bytes = 0) {
    return RawClient(server->port(), receive_buffer_bytes);
  }
  bool shows_metric(std::string_view line) const {
    return metrics.render().find(std::string(line) + "\n") != std::string::npos;
  }
  /// Waits: the server may count a moment after the client has its answer.
  bool metric_is(std::string_view line) const {
    return eventually([&] { return shows_metric(line); });
  }

  void on_request(HttpExchange& exchange) override { handler_(exchange); }

  SystemClock clock;
  Metrics metrics;
  ShardSet shards{1, clock, metrics};
  HttpServerConfig config;
  std::unique_ptr<HttpServer> server;

 private:
  std::function<void(HttpExchange&)> handler_;
};

/// Counts how often it is told that the client has gone, and why.
struct GoneObserver final : ExchangeObserver {
  void on_client_gone(ClientGone reason) override {
    last = reason;
    ++count;
  }
  std::atomic<int> count{0};
  std::atomic<ClientGone> last{ClientGone::kDisconnected};
};

inline std::string get(std::string_view target) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nhost: test\r\n\r\n";
}

inline std::string post(std::string_view target, std::string_view body) {
  return "POST " + std::string(target) +
         " HTTP/1.1\r\nhost: test\r\ncontent-length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

}  // namespace stator::net
