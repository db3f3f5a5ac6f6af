// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/unix_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "stator/io/unix_socket.h"

namespace stator::net::detail {
namespace {

constexpr int kBacklog = 64;

struct Name {
  sockaddr_un address = {};
  socklen_t length = 0;
};

Name abstract_name(const std::string& name) {
  Name result;
  result.address.sun_family = AF_UNIX;
  // The first byte stays 0: a name without a file.
  const size_t length = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), length);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

Result<FileDescriptor> open_line() {
  FileDescriptor fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) {
    return Error(Code::kIo, "opening a Unix socket: " + error_text(errno));
  }
  return fd;
}

bool same_user(int fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

Result<FileDescriptor> bind_unix(const std::string& name) {
  STATOR_TRY(FileDescriptor fd, open_line());
  const Name at = abstract_name(name);
  if (::bind(fd.get(), std::bit_cast<const sockaddr*>(&at.address), at.length) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return Error(errno == EADDRINUSE ? Code::kAlreadyExists : Code::kIo,
                 "the port's Unix socket @" + name + ": " + error_text(errno));
  }
  return fd;
}

Result<FileDescriptor> connect_unix(const std::string& name) {
  STATOR_TRY(FileDescriptor fd, open_line());
  const Name to = abstract_name(name);
  if (::connect(fd.get(), std::bit_cast<const sockaddr*>(&to.address), to.length) != 0) {
    return Error(Code::kNotFound, "the port's Unix socket @" + name + ": " + error_text(errno));
  }
  if (!same_user(fd.get())) {
    return Error(Code::kPermissionDenied, "the port's Unix socket @" + name + " is another user's");
  }
  return fd;
}

std::optional<FileDescriptor> accept_unix(int listener) {
  FileDescriptor fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.open() || !same_user(fd.get())) {
    return std::nullopt;
  }
  return fd;
}

bool send_unix(int fd, char word, std::span<const int> passed) {
  return io::send_passing(fd, {&word, 1}, passed, MSG_DONTWAIT) == 1;
}

UnixState receive_unix(int fd, UnixMessage& received) {
  received.passed.clear();
  const ssize_t count = io::receive_passed(fd, {&received.word, 1}, received.passed);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return UnixState::kNothing;
  }
  return count <= 0 ? UnixState::kEnded : UnixState::kMessage;
}

Result<uint16_t> listening_port(int fd) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  sockaddr_storage bound = {};
  socklen_t bound_length = sizeof(bound);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0 ||
      ::getsockname(fd, std::bit_cast<sockaddr*>(&bound), &bound_length) != 0 ||
      (bound.ss_family != AF_INET && bound.ss_family != AF_INET6)) {
    return Error(Code::kInvalidArgument, "a passed descriptor is no listening TCP socket");
  }
  // sin_port and sin6_port are at the same place.
  return ntohs(std::bit_cast<const sockaddr_in*>(&bound)->sin_port);
}

}  // namespace stator::net::detail
