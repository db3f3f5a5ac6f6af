// SPDX-License-Identifier: Apache-2.0
//
// What the HTTP layer alone costs: CPU of the shard's thread per small request and per streamed
// write, and memory per open stream. The clients share the process but not the thread measured.
#include <benchmark/benchmark.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/net/test/raw_client.h"
#include "stator/net/thread.h"

namespace stator::net {
namespace {

constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nhost: bench\r\naccept: */*\r\n\r\n";
// The size of one OpenAI chunk event.
constexpr size_t kEventBytes = 220;

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

struct Bench : HttpHandler {
  explicit Bench(std::function<void(HttpExchange&)> handler_in) : handler(std::move(handler_in)) {
    config.host = "127.0.0.1";
    config.port = 0;
    auto made = HttpServer::listen(shards.shard(0), config, *this, metrics);
    server = std::move(*made);
    shards.start();
  }
  ~Bench() override {
    static_cast<void>(shards.shard(0).run_and_wait([&] { server.reset(); }));
    shards.stop();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void on_request(HttpExchange& exchange) override { handler(exchange); }
  /// CPU time of the shard's thread so far.
  double loop_cpu_us() {
    timespec time = {};
    static_cast<void>(
        shards.shard(0).run_and_wait([&] { ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); }));
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  }

  std::function<void(HttpExchange&)> handler;
  SystemClock clock;
  Metrics metrics;
  ShardSet shards{1, clock, metrics};
  HttpServerConfig config;
  std::unique_ptr<HttpServer> server;
};

void unary_request(benchmark::State& state) {
  Bench bench(
      [](HttpExchange& exchange) { exchange.respond(200, "application/json", "{\"ok\":true}"); });
  RawClient client(bench.server->port());
  const double before = bench.loop_cpu_us();
  for (auto _ : state) {
    client.send(kRequest);
    benchmark::DoNotOptimize(client.read_response());
  }
  state.counters["loop_cpu_us_per_request"] =
      (bench.loop_cpu_us() - before) / static_cast<double>(state.iterations());
}
BENCHMARK(unary_request)->UseRealTime();

/// One iteration: a message to the loop that writes one event to each of 64 streams, like an engine
/// step of a batch, unpaced.
void streamed_write(benchmark::State& state) {
  constexpr size_t kStreams = 64;
  std::vector<HttpExchange*> streams;
  Bench bench([&](HttpExchange& exchange) {
    exchange.start_stream(200, "text/event-stream");
    streams.push_back(&exchange);
  });
  std::vector<RawClient> clients;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.emplace_back(bench.server->port());
    clients.back().send(kRequest);
    clients.back().read_until("\r\n\r\n");
  }
  std::atomic<bool> stop = false;
  Thread reader("bench-reader", [&] {
    std::vector<pollfd> polled;
    for (const RawClient& client : clients) {
      polled.push_back({client.fd(), POLLIN, 0});
    }
    std::vector<char> buffer(1 << 20);
    while (!stop) {
      ::poll(polled.data(), polled.size(), 10);
      for (const pollfd& client : polled) {
        if ((client.revents & POLLIN) != 0) {
          static_cast<void>(::recv(client.fd, buffer.data(), buffer.size(), MSG_DONTWAIT));
        }
      }
    }
  });
  const std::string event(kEventBytes, 'x');
  uint64_t written = 0;
  const double before = bench.loop_cpu_us();
  for (auto _ : state) {
    static_cast<void>(bench.shards.shard(0).run_and_wait([&] {
      for (HttpExchange* stream : streams) {
        if (!stream->above_high_water()) {
          stream->write(event);
          ++written;
        }
      }
    }));
  }
  state.counters["loop_cpu_us_per_write"] =
      (bench.loop_cpu_us() - before) / static_cast<double>(written);
  state.SetItemsProcessed(static_cast<int64_t>(written));
  static_cast<void>(bench.shards.shard(0).run_and_wait([&] { bench.server->close_all(); }));
  stop = true;
  reader.join();
}
BENCHMARK(streamed_write)->UseRealTime();

void idle_stream_memory(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<HttpExchange*> streams;
  Bench bench([&](HttpExchange& exchange) {
    exchange.start_stream(200, "text/event-stream");
    exchange.write("data: {}\n\n");
    streams.push_back(&exchange);
  });
  for (auto _ : state) {
    std::vector<RawClient> clients;
    clients.reserve(count);
    const int64_t before = resident_bytes();
    for (size_t i = 0; i < count; ++i) {
      clients.emplace_back(bench.server->port());
      if (!clients.back().send(kRequest) || !clients.back().read_until("data: {}")) {
        state.SkipWithError("too few file descriptors: raise ulimit -n");
        return;
      }
    }
    state.counters["rss_bytes_per_stream"] =
        static_cast<double>(resident_bytes() - before) / static_cast<double>(count);
  }
}
BENCHMARK(idle_stream_memory)->Arg(2000)->Arg(9000)->Iterations(1);

}  // namespace
}  // namespace stator::net
