// SPDX-License-Identifier: Apache-2.0
// What the kernel alone takes for a streamed token on loopback: one send to a client that waits for
// it, and one epoll and recv at whoever reads an engine's stream. The floor under every figure of
// CPU per token. docs/verification/vllm-0.32.md.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <thread>
#include <vector>

#include "stator/core/assert.h"

namespace stator::net {
namespace {

constexpr size_t kStreams = 16;
constexpr size_t kChunkBytes = 300;
constexpr int kStepMs = 5;
using Chunk = std::array<char, kChunkBytes>;

struct Pair {
  int sender = -1;
  int reader = -1;
};

/// Connected TCP sockets without delay.
std::vector<Pair> connect_pairs() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  const bool listens = ::bind(listener, any, size) == 0 &&
                       ::getsockname(listener, any, &size) == 0 &&
                       ::listen(listener, static_cast<int>(kStreams)) == 0;
  STATOR_ASSERT(listens, "loopback has a free port");
  std::vector<Pair> pairs(kStreams);
  for (Pair& pair : pairs) {
    pair.reader = ::socket(AF_INET, SOCK_STREAM, 0);
    STATOR_ASSERT(::connect(pair.reader, any, size) == 0, "loopback connects");
    pair.sender = ::accept(listener, nullptr, nullptr);
    const int on = 1;
    ::setsockopt(pair.sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ::close(listener);
  return pairs;
}

double thread_cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void send_step(const std::vector<Pair>& pairs) {
  const Chunk chunk{};
  for (const Pair& pair : pairs) {
    benchmark::DoNotOptimize(::send(pair.sender, chunk.data(), chunk.size(), MSG_NOSIGNAL));
  }
}

/// A step every 5 ms to readers that sleep meanwhile, each on a thread of its own as in a client.
void BM_SendToWaitingReader(benchmark::State& state) {
  const std::vector<Pair> pairs = connect_pairs();
  std::vector<std::jthread> readers;
  for (const Pair& pair : pairs) {
    readers.emplace_back([fd = pair.reader] {
      Chunk chunk;
      while (::recv(fd, chunk.data(), chunk.size(), 0) > 0) {
      }
      ::close(fd);
    });
  }
  for (auto _ : state) {
    const double before = thread_cpu_s();
    send_step(pairs);
    state.SetIterationTime((thread_cpu_s() - before) / kStreams);
    ::poll(nullptr, 0, kStepMs);
  }
  for (const Pair& pair : pairs) {
    ::close(pair.sender);
  }
}
BENCHMARK(BM_SendToWaitingReader)->Iterations(1000)->UseManualTime();

void BM_EpollAndRecv(benchmark::State& state) {
  const std::vector<Pair> pairs = connect_pairs();
  std::jthread sender([&pairs](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      send_step(pairs);
      ::poll(nullptr, 0, kStepMs);
    }
  });
  const int poller = ::epoll_create1(0);
  for (const Pair& pair : pairs) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = pair.reader}};
    ::epoll_ctl(poller, EPOLL_CTL_ADD, pair.reader, &event);
  }
  for (auto _ : state) {
    const double before = thread_cpu_s();
    for (size_t bytes = 0; bytes < kStreams * kChunkBytes;) {
      std::array<epoll_event, kStreams> events;
      const int ready = ::epoll_wait(poller, events.data(), kStreams, -1);
      for (int i = 0; i < ready; ++i) {
        Chunk chunk;
        const ssize_t got =
            ::recv(events[static_cast<size_t>(i)].data.fd, chunk.data(), chunk.size(), 0);
        bytes += got > 0 ? static_cast<size_t>(got) : 0;
      }
    }
    state.SetIterationTime((thread_cpu_s() - before) / kStreams);
  }
  sender.request_stop();
  sender.join();
  ::close(poller);
  for (const Pair& pair : pairs) {
    ::close(pair.sender);
    ::close(pair.reader);
  }
}
BENCHMARK(BM_EpollAndRecv)->Iterations(1000)->UseManualTime();

}  // namespace
}  // namespace stator::net
