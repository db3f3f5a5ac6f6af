// SPDX-License-Identifier: Apache-2.0
#include "generator.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

namespace stator::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 256 * 1024;
// Two connections per millisecond: fast enough for tests, slow enough for any accept queue.
constexpr size_t kDialsPerTurn = 4;
constexpr int kDialTurnMs = 2;
constexpr int kIdleTurnMs = 20;

double milliseconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

double read_cpu_seconds(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) {
    return 0;
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double watched_cpu_seconds(int pid) {
  clockid_t clock{};
  return pid > 0 && clock_getcpuclockid(pid, &clock) == 0 ? read_cpu_seconds(clock) : 0;
}

bool make_address(const std::string& host, uint16_t port, sockaddr_in& address) {
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace

std::expected<std::unique_ptr<Generator>, std::string> Generator::create(Options options) {
  std::unique_ptr<Generator> generator(new Generator(std::move(options)));
  const Options& chosen = generator->options_;
  if (!make_address(chosen.host, chosen.port, generator->server_)) {
    return std::unexpected("--host: '" + chosen.host + "' is not an IPv4 address");
  }
  if (!chosen.source.empty() && !make_address(chosen.source, 0, generator->source_)) {
    return std::unexpected("--source: '" + chosen.source + "' is not an IPv4 address");
  }
  if (generator->epoll_ < 0) {
    return std::unexpected("epoll_create1 failed: raise the limit of open files");
  }
  return generator;
}

Generator::Generator(Options options)
    : options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      connections_(options_.hold > 0 ? options_.hold : options_.connections),
      buffer_(kReadBytes) {
  raise_descriptor_limit();
  build_requests();
}

Generator::~Generator() {
  for (Connection& connection : connections_) {
    hang_up(connection);
  }
  if (epoll_ >= 0) {
    ::close(epoll_);
  }
}

void Generator::build_requests() {
  requests_.reserve(options_.bodies.size());
  for (const std::string& body : options_.bodies) {
    requests_.push_back("POST " + options_.path + " HTTP/1.1\r\nHost: " + options_.host + ":" +
                        std::to_string(options_.port) +
                        "\r\nContent-Type: application/json\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body);
  }
}

bool Generator::dial(Connection& connection) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return false;
  }
  connection.fd = fd;
  const int on = 1;
  if (!options_.source.empty()) {
    // Lets the kernel choose the port at connect, so that each address has all ports per server.
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&source_), sizeof source_) != 0) {
      return false;
    }
  }
  if (connect(fd, reinterpret_cast<const sockaddr*>(&server_), sizeof server_) != 0) {
    return false;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.ptr = &connection;
  return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 &&
         epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &interest) == 0;
}

void Generator::hang_up(Connection& connection) {
  if (connection.fd >= 0) {
    ::close(connection.fd);
    connection.fd = -1;
    connection.waits_writable = false;
  }
}

bool Generator::may_send() const {
  const size_t limit = options_.hold > 0 ? options_.hold : options_.requests;
  return !stopping_ && (limit == 0 || sent_ < limit);
}

void Generator::start_next(Connection& connection) {
  if (!may_send()) {
    return;
  }
  connection.unsent = requests_[sent_++ % requests_.size()];
  connection.seen_text = false;
  connection.busy = true;
  ++busy_;
  connection.parser.reset();
  connection.sent_at = SteadyClock::now();
  if (connection.fd < 0 && !dial(connection)) {
    fail(connection, "connect");
    return;
  }
  send_rest(connection);
}

void Generator::send_rest(Connection& connection) {
  while (!connection.unsent.empty()) {
    const ssize_t written =
        send(connection.fd, connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
    if (written < 0) {
      break;  // full: wait until writable; broken: the next read says so
    }
    connection.unsent.remove_prefix(static_cast<size_t>(written));
  }
  const bool blocked = !connection.unsent.empty();
  if (blocked != connection.waits_writable) {
    connection.waits_writable = blocked;
    epoll_event interest{};
    interest.events = EPOLLIN | (blocked ? EPOLLOUT : 0U);
    interest.data.ptr = &connection;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &interest);
  }
}

void Generator::poll_once(int timeout_ms) {
  std::array<epoll_event, 256> ready{};
  const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.ptr == nullptr) {
      input_ended_ = read(STDIN_FILENO, buffer_.data(), buffer_.size()) <= 0;
      continue;
    }
    Connection& connection = *static_cast<Connection*>(event.data.ptr);
    if ((event.events & EPOLLOUT) != 0) {
      send_rest(connection);
    }
    if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
      on_readable(connection);
    }
  }
}

void Generator::on_readable(Connection& connection) {
  const ssize_t count = recv(connection.fd, buffer_.data(), buffer_.size(), 0);
  if (count > 0) {
    take(connection, {buffer_.data(), static_cast<size_t>(count)});
    return;
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  hang_up(connection);
  if (connection.busy) {
    finish(connection, connection.parser.on_close());
  }
}

void Generator::take(Connection& connection, std::string_view bytes) {
  if (!connection.busy) {
    return;
  }
  const SseCounts before = connection.parser.sse();
  const ResponseParser::State state = connection.parser.feed(bytes);
  const SseCounts& after = connection.parser.sse();
  if (measuring_) {
    report_.events += after.events - before.events;
    report_.content_events += after.content_events - before.content_events;
  }
  if (!connection.seen_text && after.content_events > 0) {
    connection.seen_text = true;
    ++first_texts_;
    if (measuring_) {
      report_.ttft.add(milliseconds_since(connection.sent_at));
    }
  }
  if (state != ResponseParser::State::kMore) {
    finish(connection, state);
  }
}

void Generator::finish(Connection& connection, ResponseParser::State state) {
  const ResponseParser& parser = connection.parser;
  const SseCounts& sse = parser.sse();
  if (state == ResponseParser::State::kBroken) {
    fail(connection, "cut");
    return;
  }
  if (parser.status() != 200) {
    if (report_.first_error.empty()) {
      report_.first_error = parser.error_body();
    }
    fail(connection, std::to_string(parser.status()));
    return;
  }
  if (parser.is_stream() && (sse.error || !sse.done)) {
    fail(connection, sse.error ? "error event" : "no [DONE]");
    return;
  }
  if (measuring_) {
    ++report_.completed;
    report_.latency.add(milliseconds_since(connection.sent_at));
  }
  connection.busy = false;
  --busy_;
  if (parser.must_close()) {
    hang_up(connection);
  }
  start_next(connection);
}

void Generator::fail(Connection& connection, const std::string& kind) {
  // A failed connection sends nothing more: a broken server must end the run, not spin it.
  ++failed_;
  ++report_.errors[kind];
  connection.busy = false;
  --busy_;
  hang_up(connection);
}

void Generator::open_window() {
  measuring_ = true;
  report_.watched_cpu_seconds = watched_cpu_seconds(options_.watched_pid);
  report_.own_cpu_seconds = read_cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  window_start_ = SteadyClock::now();
}

void Generator::close_window() {
  measuring_ = false;
  report_.seconds = milliseconds_since(window_start_) * 1e-3;
  report_.watched_cpu_seconds =
      watched_cpu_seconds(options_.watched_pid) - report_.watched_cpu_seconds;
  report_.own_cpu_seconds = read_cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - report_.own_cpu_seconds;
  for (const Connection& connection : connections_) {
    report_.open += connection.busy ? 1 : 0;
    report_.open_with_first += connection.busy && connection.seen_text ? 1 : 0;
  }
}

Report Generator::run_closed_loop() {
  const Time start = SteadyClock::now();
  if (options_.warm_up.count() == 0) {
    open_window();
  }
  for (Connection& connection : connections_) {
    start_next(connection);
  }
  while (busy_ > 0) {
    poll_once(kIdleTurnMs);
    const Seconds elapsed = SteadyClock::now() - start;
    if (!measuring_ && elapsed >= options_.warm_up) {
      open_window();
    }
    const bool over = options_.seconds.count() > 0 && measuring_ &&
                      SteadyClock::now() - window_start_ >= options_.seconds;
    if (over || elapsed >= options_.timeout) {
      stopping_ = true;
      break;
    }
  }
  if (!measuring_) {
    open_window();  // every connection failed during the warm-up: report an empty window
  }
  close_window();
  return report_;
}

Report Generator::run_hold() {
  open_window();
  const Time start = SteadyClock::now();
  size_t dialed = 0;
  while (first_texts_ + failed_ < options_.hold) {
    for (size_t i = 0; i < kDialsPerTurn && dialed < connections_.size(); ++i) {
      start_next(connections_[dialed++]);
    }
    poll_once(dialed < connections_.size() ? kDialTurnMs : kIdleTurnMs);
    if (SteadyClock::now() - start >= options_.timeout) {
      break;
    }
  }
  stopping_ = true;
  close_window();
  return report_;
}

void Generator::hold_until_input_ends() {
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.ptr = nullptr;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, STDIN_FILENO, &interest) != 0) {
    return;  // a plain file cannot be waited for: nobody holds the other end
  }
  while (!input_ended_) {
    poll_once(kIdleTurnMs);
  }
}

}  // namespace stator::bench
