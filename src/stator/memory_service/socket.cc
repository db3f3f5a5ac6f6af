// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace stator::memory_service {
namespace {

struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
};

/// Reads exactly so many bytes, and takes the descriptor that may come with the first.
bool receive_exactly(int socket, char* out, size_t size, io::FileDescriptor& descriptor) {
  while (size > 0) {
    iovec part{out, size};
    Control control;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.room.data();
    message.msg_controllen = control.room.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); got > 0 && header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
        descriptor = io::FileDescriptor(fd);
      }
    }
    if (got <= 0) {
      return false;
    }
    out += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error(Code::kInvalidArgument, fmt::format("'{}' is no path of a Unix socket (1 … {} "
                                                     "bytes)",
                                                     path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<io::FileDescriptor> connect_socket(const std::string& path) {
  STATOR_TRY(const sockaddr_un address, socket_address(path));
  io::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.open() ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error(Code::kUnavailable,
                 fmt::format("no memory service listens at {}: {}", path, std::strerror(errno)));
  }
  return socket;
}

uint32_t read_length(std::string_view bytes) {
  uint32_t out = 0;
  for (size_t i = 0; i < 4; ++i) {
    out = out << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return out;
}

bool send_message(int socket, const Message& message, int descriptor) {
  const std::string bytes = encode(message);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    iovec part{const_cast<char*>(rest.data()), rest.size()};
    Control control;
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
      header.msg_control = control.room.data();
      header.msg_controllen = control.room.size();
      cmsghdr* const right = CMSG_FIRSTHDR(&header);
      right->cmsg_level = SOL_SOCKET;
      right->cmsg_type = SCM_RIGHTS;
      right->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(right), &descriptor, sizeof descriptor);
    }
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    descriptor = -1;  // it went with the first bytes
    rest.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

Result<Message> receive_message(int socket, io::FileDescriptor& descriptor) {
  std::array<char, 4> head{};
  if (!receive_exactly(socket, head.data(), head.size(), descriptor)) {
    return Error(Code::kDisconnected, "the memory service is gone");
  }
  const uint32_t size = read_length({head.data(), head.size()});
  if (size > Message::kBytesMax) {
    return Error(Code::kCorrupt, "a message of the memory service is too long");
  }
  std::string body(size, '\0');
  if (!receive_exactly(socket, body.data(), body.size(), descriptor)) {
    return Error(Code::kDisconnected, "the memory service is gone");
  }
  return decode_message(body);
}

}  // namespace stator::memory_service
