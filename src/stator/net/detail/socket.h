// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::net::detail {

/// What the system calls this errno: "Address already in use".
std::string error_text(int error);

using io::FileDescriptor;

/// A host's name or address and a port's number, as somebody wrote them.
struct Endpoint {
  std::string host;
  std::string port;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const;
};

/// "host:port", "[IPv6]:port"; without a port if there is none.
Endpoint split_endpoint(std::string_view text);
/// Where `where` is, without asking anybody: empty unless its host is an address.
std::vector<SocketAddress> numeric_addresses(const Endpoint& where);
/// The same of a name; may take long. kUnavailable, saying why.
Result<std::vector<SocketAddress>> find_addresses(const Endpoint& where);
/// The first address that `host` stands for, to listen on; may be in brackets, may take long.
Result<std::string> find_own_address(std::string_view host);

/// How a connection attempt stands.
struct Connecting {
  FileDescriptor fd;  ///< non-blocking, no delay; closed: `error` says why
  int error = 0;
};
/// Begins to connect; the descriptor is writable once that has ended, see connect_error().
Connecting begin_connecting(const SocketAddress& address);
/// errno of the attempt that has ended; 0: connected.
int connect_error(int fd);

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
