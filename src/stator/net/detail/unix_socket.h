// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/net/detail/socket.h"

namespace stator::net::detail {

/// System calls around the Unix sockets (SOCK_SEQPACKET, abstract names) by which processes find
/// each other and pass descriptors; no policy.

/// A listening socket of that name. kAlreadyExists if somebody has it.
Result<FileDescriptor> bind_unix(const std::string& name);
/// Connects to whoever has the name. kNotFound: nobody; kPermissionDenied: another user.
Result<FileDescriptor> connect_unix(const std::string& name);
/// A connection that waits, if it is the same user's (or root's); none otherwise.
std::optional<FileDescriptor> accept_unix(int listener);

/// One byte and descriptors, io::kPassedMax at most. False if the other side is gone or reads
/// nothing.
bool send_unix(int fd, char word, std::span<const int> passed = {});

struct UnixMessage {
  char word = 0;
  std::vector<FileDescriptor> passed;
};
enum class UnixState : uint8_t { kMessage, kNothing, kEnded };
/// Never blocks unless the socket does.
UnixState receive_unix(int fd, UnixMessage& message);

/// What a passed descriptor listens on; kInvalidArgument if it is not a listening TCP socket.
Result<uint16_t> listening_port(int fd);

}  // namespace stator::net::detail
