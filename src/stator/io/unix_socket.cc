// SPDX-License-Identifier: Apache-2.0
#include "stator/io/unix_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "stator/io/io_error.h"

namespace stator::io {
namespace {

struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kPassedMax)> room;
};

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is no path of a Unix socket (1 … {} bytes)", path,
                             sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Result<FileDescriptor> listen_unix(const std::string& path, int type, int backlog) {
  STATOR_TRY(const sockaddr_un address, address_of(path));
  ::unlink(path.c_str());  // of a process that is gone
  FileDescriptor listener(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const mode_t before = ::umask(0177);
  const bool bound =
      listener.open() &&
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(listener.get(), backlog) == 0;
  const int why = errno;
  ::umask(before);
  if (!bound) {
    return io_error("listen at", path, why);
  }
  return listener;
}

Result<FileDescriptor> connect_unix(const std::string& path, int type) {
  STATOR_TRY(const sockaddr_un address, address_of(path));
  FileDescriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket.open() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error(Code::kUnavailable,
                 fmt::format("nothing listens at {}: {}", path, std::strerror(errno)));
  }
  return socket;
}

ssize_t send_passing(int socket, std::span<const char> bytes, std::span<const int> passed,
                     int flags) {
  Control control;
  iovec data = {.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  const std::span<const int> fds = passed.first(std::min(passed.size(), kPassedMax));
  if (!fds.empty()) {
    message.msg_control = control.room.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    std::memset(control.room.data(), 0, message.msg_controllen);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
}

ssize_t receive_passed(int socket, std::span<char> bytes, std::vector<FileDescriptor>& passed) {
  Control control;
  iovec data = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.room.data();
  message.msg_controllen = control.room.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); got >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      passed.emplace_back(fd);
    }
  }
  return got;
}

}  // namespace stator::io
