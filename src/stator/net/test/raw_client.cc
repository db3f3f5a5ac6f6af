// SPDX-License-Identifier: Apache-2.0
#include "stator/net/test/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <bit>
#include <charconv>
#include <thread>

#include "stator/core/clock.h"

namespace stator::net {
namespace {

constexpr int kPatienceMs = 60'000;

bool wait_for(int fd, short events) {
  pollfd poll_fd{fd, events, 0};
  return ::poll(&poll_fd, 1, kPatienceMs) == 1;
}

}  // namespace

RawClient::RawClient(uint16_t port, int receive_buffer_bytes)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0) {
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                 sizeof(receive_buffer_bytes));
  }
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_.get(), std::bit_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fd_.reset();
  }
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!wait_for(fd_.get(), POLLOUT)) {
      return false;
    }
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::read_some() {
  char buffer[64 * 1024];
  if (!wait_for(fd_.get(), POLLIN)) {
    return false;
  }
  const ssize_t got = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
  if (got <= 0) {
    return false;
  }
  received_.append(buffer, static_cast<size_t>(got));
  return true;
}

bool RawClient::read_until(std::string_view text) {
  while (received_.find(text) == std::string::npos) {
    if (!read_some()) {
      return false;
    }
  }
  return true;
}

std::string RawClient::read_to_end() {
  while (read_some()) {
  }
  return received_;
}

std::optional<std::string> RawClient::take_line() {
  if (!read_until("\r\n")) {
    return std::nullopt;
  }
  const size_t end = received_.find("\r\n");
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 2);
  return line;
}

bool RawClient::take_bytes(size_t count, std::string& out) {
  while (received_.size() < count) {
    if (!read_some()) {
      return false;
    }
  }
  out += received_.substr(0, count);
  received_.erase(0, count);
  return true;
}

std::optional<RawClient::Response> RawClient::read_response(bool head_request) {
  if (!read_until("\r\n\r\n")) {
    return std::nullopt;
  }
  Response response;
  const size_t end = received_.find("\r\n\r\n") + 4;
  response.head = received_.substr(0, end);
  received_.erase(0, end);
  std::from_chars(response.head.data() + 9, response.head.data() + 12, response.status);
  if (head_request || response.status == 204 || response.status == 100) {
    return response;
  }
  if (response.has("transfer-encoding: chunked\r\n")) {
    for (;;) {
      const auto line = take_line();
      size_t bytes = 0;
      if (!line ||
          std::from_chars(line->data(), line->data() + line->size(), bytes, 16).ec != std::errc()) {
        return std::nullopt;
      }
      std::string crlf;
      if (!take_bytes(bytes, response.body) || !take_bytes(2, crlf)) {
        return std::nullopt;
      }
      if (bytes == 0) {
        return response;
      }
    }
  }
  constexpr std::string_view kLength = "content-length: ";
  const size_t at = response.head.find(kLength);
  if (at == std::string::npos) {
    response.body = read_to_end();
    return response;
  }
  size_t length = 0;
  std::from_chars(response.head.data() + at + kLength.size(),
                  response.head.data() + response.head.size(), length);
  if (!take_bytes(length, response.body)) {
    return std::nullopt;
  }
  return response;
}

void RawClient::shutdown_write() {
  ::shutdown(fd_.get(), SHUT_WR);
}

void RawClient::reset() {
  const linger now{1, 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  fd_.reset();
}

bool eventually(const std::function<bool()>& condition) {
  const SystemClock clock;
  const TimePoint end = clock.now() + std::chrono::milliseconds(kPatienceMs);
  while (!condition()) {
    if (clock.now() > end) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

}  // namespace stator::net
