// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/socket.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "stator/io/unix_socket.h"

namespace stator::memory_service {
namespace {

/// Reads exactly so many bytes, and takes the descriptor that may come with the first.
bool receive_exactly(int socket, std::span<char> out, io::FileDescriptor& descriptor) {
  std::vector<io::FileDescriptor> passed;
  while (!out.empty()) {
    const ssize_t got = io::receive_passed(socket, out, passed);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    if (!passed.empty()) {
      descriptor = std::move(passed.back());
      passed.clear();
    }
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

Result<io::FileDescriptor> connect_socket(const std::string& path) {
  auto socket = io::connect_unix(path, SOCK_STREAM);
  if (!socket) {
    return Error(socket.error().code(), "no memory service: " + socket.error().message());
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
  std::span<const char> rest = bytes;
  std::span<const int> passed = {&descriptor, descriptor >= 0 ? size_t{1} : size_t{0}};
  while (!rest.empty()) {
    const ssize_t sent = io::send_passing(socket, rest, passed);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    passed = {};  // they went with the first bytes
    rest = rest.subspan(static_cast<size_t>(sent));
  }
  return true;
}

Result<Message> receive_message(int socket, io::FileDescriptor& descriptor) {
  std::array<char, 4> head{};
  if (!receive_exactly(socket, head, descriptor)) {
    return Error(Code::kDisconnected, "the memory service is gone");
  }
  const uint32_t size = read_length({head.data(), head.size()});
  if (size > Message::kBytesMax) {
    return Error(Code::kCorrupt, "a message of the memory service is too long");
  }
  std::string body(size, '\0');
  if (!receive_exactly(socket, body, descriptor)) {
    return Error(Code::kDisconnected, "the memory service is gone");
  }
  return decode_message(body);
}

}  // namespace stator::memory_service
