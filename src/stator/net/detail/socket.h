// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::net::detail {

/// What the system calls this errno: "Address already in use".
std::string error_text(int error);

using io::FileDescriptor;

/// Whether a listener refuses a port that somebody listens on, or joins our own other shards.
enum class Sharing : uint8_t { kExclusive, kJoin };

struct ListenSocket {
  FileDescriptor fd;
  uint16_t port = 0;
};

/// A non-blocking TCP listening socket on a numeric address, port 0 for any. All have SO_REUSEPORT
/// set, so that one port spreads over the shards; kExclusive makes sure first that nobody else has
/// it. Fails with kInvalidArgument (address), kAlreadyExists (port in use), kIo.
Result<ListenSocket> listen_tcp(const std::string& host, uint16_t port, Sharing sharing);

/// What accept() brought.
struct Accepted {
  FileDescriptor fd;  ///< non-blocking, no delay; closed when there is none
  int error = 0;      ///< errno worth backing off for (descriptors, memory), else 0
};

/// "host:port" of a connected socket's other end; empty when it has gone.
std::string peer_address(int fd);

/// Takes one connection without blocking.
Accepted accept_tcp(int listener);

}  // namespace stator::net::detail
