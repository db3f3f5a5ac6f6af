// SPDX-License-Identifier: Apache-2.0
// An OpenAI-compatible server that does next to nothing, for measuring load generators: one thread,
// epoll, answers made once. `fast_server PORT [--first-us N] [--gap-us N] [--burst N]`; port 0
// takes any and prints it. A stream has max_tokens events, sent in bursts of --burst with --gap-us
// between.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Time = std::chrono::steady_clock::time_point;
using std::chrono::microseconds;

struct Options {
  uint16_t port = 0;
  long first_us = 0;
  long gap_us = 0;
  long burst = 1;
};

std::string chunk(const std::string& text) {
  std::array<char, 24> head{};
  const int length = std::snprintf(head.data(), head.size(), "%zx\r\n", text.size());
  return std::string(head.data(), static_cast<size_t>(length)) + text + "\r\n";
}

std::string event(long count) {
  std::string out;
  for (long i = 0; i < count; ++i) {
    out +=
        R"(data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]})"
        "\n\n";
  }
  return chunk(out);
}

struct Connection {
  int fd = -1;
  std::string in;
  std::string out;
  long left = 0;  // tokens of the stream not yet written
  long total = 0;
  uint64_t generation = 0;
};

struct Wake {
  Time at;
  Connection* connection;
  uint64_t generation;
  bool operator>(const Wake& other) const { return at > other.at; }
};

class Server {
 public:
  explicit Server(const Options& options) : options_(options), burst_(event(options.burst)) {}

  bool listen() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(options_.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener_, 65535) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      std::perror("listening");
      return false;
    }
    std::printf("{\"port\": %d}\n", ntohs(address.sin_port));
    std::fflush(stdout);
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    epoll_event interest{.events = EPOLLIN, .data = {.ptr = nullptr}};
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &interest) == 0;
  }

  [[noreturn]] void run() {
    std::array<epoll_event, 512> ready{};
    for (;;) {
      const int count =
          ::epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), wait_ms());
      for (int i = 0; i < count; ++i) {
        auto* connection = static_cast<Connection*>(ready[static_cast<size_t>(i)].data.ptr);
        if (connection == nullptr) {
          accept_all();
        } else if ((ready[static_cast<size_t>(i)].events & EPOLLOUT) != 0) {
          watch(*connection, EPOLLIN);
          flush(*connection);
        } else {
          read(*connection);
        }
      }
      wake();
    }
  }

 private:
  int wait_ms() const {
    if (wakes_.empty()) {
      return -1;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        wakes_.top().at - std::chrono::steady_clock::now());
    return left.count() < 0 ? 0 : static_cast<int>(left.count());
  }

  void wake() {
    const Time now = std::chrono::steady_clock::now();
    while (!wakes_.empty() && wakes_.top().at <= now) {
      const Wake next = wakes_.top();
      wakes_.pop();
      if (next.generation == next.connection->generation) {
        step(*next.connection);
      }
    }
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        return;
      }
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (free_.empty()) {
        connections_.push_back(std::make_unique<Connection>());
        free_.push_back(connections_.back().get());
      }
      Connection* connection = free_.back();
      free_.pop_back();
      connection->fd = fd;
      epoll_event interest{.events = EPOLLIN, .data = {.ptr = connection}};
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest);
    }
  }

  void watch(Connection& connection, uint32_t events) const {
    epoll_event interest{.events = events, .data = {.ptr = &connection}};
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &interest);
  }

  void read(Connection& connection) {
    const ssize_t got = ::recv(connection.fd, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) {
      ::close(connection.fd);
      connection.in.clear();
      connection.out.clear();
      connection.left = 0;
      ++connection.generation;
      free_.push_back(&connection);
      return;
    }
    connection.in.append(buffer_.data(), static_cast<size_t>(got));
    const size_t head = connection.in.find("\r\n\r\n");
    const size_t length_at = connection.in.find("Content-Length: ");
    if (head == std::string::npos) {
      return;
    }
    const size_t length =
        length_at < head ? std::strtoul(connection.in.c_str() + length_at + 16, nullptr, 10) : 0;
    if (connection.in.size() < head + 4 + length) {
      return;
    }
    answer(connection, std::string_view(connection.in).substr(head + 4));
    connection.in.clear();
  }

  void answer(Connection& connection, std::string_view body) {
    const size_t at = body.find("\"max_tokens\":");
    connection.total = at == std::string_view::npos ? 1 : std::atol(body.data() + at + 13);
    ++connection.generation;
    if (body.find("\"stream\":true") == std::string_view::npos) {
      const std::string text =
          connection.in.starts_with("GET")
              ? R"({"object":"list","data":[{"id":"m","object":"model"}]})"
              : R"({"id":"chatcmpl-0","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":31,"completion_tokens":1,"total_tokens":32}})";
      connection.out = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                       std::to_string(text.size()) + "\r\n\r\n" + text;
      connection.left = 0;
      flush(connection);
      return;
    }
    connection.out =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.left = connection.total;
    if (options_.first_us > 0) {
      wakes_.push({std::chrono::steady_clock::now() + microseconds(options_.first_us), &connection,
                   connection.generation});
    } else {
      step(connection);
    }
  }

  void step(Connection& connection) {
    const long count = std::min(connection.left, options_.burst);
    connection.out += count == options_.burst ? burst_ : event(count);
    connection.left -= count;
    if (connection.left == 0) {
      connection.out += chunk(
                            "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":31,"
                            "\"completion_tokens\":" +
                            std::to_string(connection.total) + "}}\n\ndata: [DONE]\n\n") +
                        "0\r\n\r\n";
    } else if (options_.gap_us > 0) {
      wakes_.push({std::chrono::steady_clock::now() + microseconds(options_.gap_us), &connection,
                   connection.generation});
    }
    flush(connection);
  }

  void flush(Connection& connection) {
    for (;;) {
      const ssize_t put =
          ::send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
      if (put < 0 || static_cast<size_t>(put) < connection.out.size()) {
        connection.out.erase(0, put < 0 ? 0 : static_cast<size_t>(put));
        watch(connection, EPOLLIN | EPOLLOUT);
        return;
      }
      connection.out.clear();
      if (connection.left == 0 || options_.gap_us > 0) {
        return;
      }
      const long count = std::min(connection.left, options_.burst);
      connection.out += count == options_.burst ? burst_ : event(count);
      connection.left -= count;
      if (connection.left == 0) {
        connection.out += chunk(
                              "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":31,"
                              "\"completion_tokens\":" +
                              std::to_string(connection.total) + "}}\n\ndata: [DONE]\n\n") +
                          "0\r\n\r\n";
      }
    }
  }

  const Options options_;
  const std::string burst_;
  int listener_ = -1;
  int epoll_ = -1;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> free_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
  std::array<char, 65536> buffer_{};
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.port = static_cast<uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0);
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view flag(argv[i]);
    (flag == "--first-us" ? options.first_us
     : flag == "--gap-us" ? options.gap_us
                          : options.burst) = std::atol(argv[i + 1]);
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Server server(options);
  if (!server.listen()) {
    return 1;
  }
  server.run();
}
