// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/socket_io.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace stator::transfer {
namespace {

constexpr int kBufferBytes = 4 << 20;
constexpr int kBacklog = 64;

bool to_address(const std::string& host, uint16_t port, sockaddr_in& out) {
  out = {};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  return ::inet_pton(AF_INET, host.c_str(), &out.sin_addr) == 1;
}

}  // namespace

bool send_all(int fd, std::span<const std::byte> head, std::span<const std::byte> payload) {
  std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(head.data()), head.size()},
                                iovec{const_cast<std::byte*>(payload.data()), payload.size()}};
  size_t first = 0;
  while (first < parts.size()) {
    msghdr message{};
    message.msg_iov = &parts[first];
    message.msg_iovlen = parts.size() - first;
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0 && head.size() + payload.size() > 0) {
      return false;
    }
    auto left = static_cast<size_t>(sent);
    while (first < parts.size() && left >= parts[first].iov_len) {
      left -= parts[first++].iov_len;
    }
    if (first < parts.size()) {
      parts[first].iov_base = static_cast<std::byte*>(parts[first].iov_base) + left;
      parts[first].iov_len -= left;
    }
  }
  return true;
}

bool receive_all(int fd, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::recv(fd, out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

bool receive_frame(int fd, Frame& frame, bool* malformed) {
  std::array<std::byte, Frame::kBytes> head{};
  if (!receive_all(fd, head)) {
    return false;
  }
  const auto decoded = decode_frame(head);
  if (!decoded) {
    if (malformed != nullptr) {
      *malformed = true;
    }
    return false;
  }
  frame = *decoded;
  return true;
}

void set_up_socket(int fd, Duration limit) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof kBufferBytes);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kBufferBytes, sizeof kBufferBytes);
  limit_silence(fd, limit);
}

void limit_silence(int fd, Duration limit) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(limit).count();
  const timeval time{.tv_sec = micros / 1'000'000, .tv_usec = micros % 1'000'000};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

io::FileDescriptor listen_tcp(const std::string& host, uint16_t& port) {
  sockaddr_in address{};
  io::FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t length = sizeof address;
  if (!fd.open() || !to_address(host, port, address) ||
      ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), kBacklog) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return {};
  }
  port = ntohs(address.sin_port);
  return fd;
}

io::FileDescriptor connect_tcp(const std::string& host, uint16_t port, Duration limit) {
  sockaddr_in address{};
  io::FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.open() || !to_address(host, port, address)) {
    return {};
  }
  set_up_socket(fd.get(), limit);  // the send limit bounds connect(), too
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return fd;
}

}  // namespace stator::transfer
