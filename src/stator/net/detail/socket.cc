// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

namespace stator::net::detail {
namespace {

// The kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 4096;
constexpr int kPortTriesMax = 8;

Result<SocketAddress> parse_address(const std::string& host, uint16_t port) {
  SocketAddress address;
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    address.length = sizeof(v4);
    std::memcpy(&address.storage, &v4, sizeof(v4));
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    address.length = sizeof(v6);
    std::memcpy(&address.storage, &v6, sizeof(v6));
  } else {
    return Error(Code::kInvalidArgument, "cannot listen on \"" + host +
                                             "\": --host takes an IPv4 or IPv6 address such as "
                                             "0.0.0.0, 127.0.0.1 or ::");
  }
  return address;
}

Status set_option(int fd, int level, int option) {
  const int on = 1;
  if (setsockopt(fd, level, option, &on, sizeof(on)) != 0) {
    return Error(Code::kIo, "setting a socket option: " + error_text(errno));
  }
  return {};
}

std::string place(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Error bind_error(int error, const std::string& host, uint16_t port) {
  const std::string text = "cannot listen on " + place(host, port) + ": " + error_text(error);
  switch (error) {
    case EADDRINUSE:
      return {Code::kAlreadyExists, text + "; choose another with --port"};
    case EACCES:
      return {Code::kPermissionDenied, text + "; choose a port from 1024 up with --port"};
    case EADDRNOTAVAIL:
      return {Code::kInvalidArgument, text + "; choose an address of this machine with --host"};
    default:
      return {Code::kIo, text};
  }
}

Result<FileDescriptor> bind_tcp(const SocketAddress& address, const std::string& host,
                                uint16_t port, Sharing sharing) {
  FileDescriptor fd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) {
    return Error(Code::kIo, "opening a socket: " + error_text(errno));
  }
  STATOR_CHECK(set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR));
  if (sharing == Sharing::kJoin) {
    STATOR_CHECK(set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT));
  }
  if (::bind(fd.get(), address.get(), address.length) != 0) {
    return bind_error(errno, host, port);
  }
  return fd;
}

std::string without_brackets(std::string_view host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return std::string(bracketed ? host.substr(1, host.size() - 2) : host);
}

/// 0, or an error of getaddrinfo().
int ask_addresses(const Endpoint& where, int flags, std::vector<SocketAddress>& found) {
  addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int error = ::getaddrinfo(
      where.host.c_str(), where.port.empty() ? nullptr : where.port.c_str(), &hints, &first);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(first, &::freeaddrinfo);
  for (const addrinfo* at = first; error == 0 && at != nullptr; at = at->ai_next) {
    SocketAddress address;
    address.length = at->ai_addrlen;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    found.push_back(address);
  }
  return error;
}

}  // namespace

std::string error_text(int error) {
  const char* text = ::strerrordesc_np(error);
  return text != nullptr ? text : "error " + std::to_string(error);
}

const sockaddr* SocketAddress::get() const {
  return std::bit_cast<const sockaddr*>(&storage);
}

Endpoint split_endpoint(std::string_view text) {
  Endpoint endpoint{std::string(text), {}};
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    endpoint.host = without_brackets(text.substr(0, colon));
    endpoint.port = text.substr(colon + 1);
  }
  return endpoint;
}

std::vector<SocketAddress> numeric_addresses(const Endpoint& where) {
  std::vector<SocketAddress> found;
  ask_addresses(where, AI_NUMERICHOST | AI_NUMERICSERV, found);
  return found;
}

Result<std::vector<SocketAddress>> find_addresses(const Endpoint& where) {
  std::vector<SocketAddress> found;
  if (const int error = ask_addresses(where, 0, found); error != 0) {
    return Error(Code::kUnavailable, ::gai_strerror(error));
  }
  return found;
}

Result<std::string> find_own_address(std::string_view host) {
  std::vector<SocketAddress> found;
  const int error = ask_addresses({without_brackets(host), {}}, AI_PASSIVE, found);
  if (error != 0) {
    return Error(Code::kInvalidArgument,
                 "\"" + std::string(host) +
                     "\" is no address or name to listen on: " + ::gai_strerror(error));
  }
  char text[NI_MAXHOST] = "";
  ::getnameinfo(found.front().get(), found.front().length, text, sizeof(text), nullptr, 0,
                NI_NUMERICHOST);
  return std::string(text);
}

Connecting begin_connecting(const SocketAddress& address) {
  FileDescriptor fd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) {
    return {{}, errno};
  }
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY).ignore("latency only");
  if (::connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return {{}, errno};
  }
  return {std::move(fd), 0};
}

int connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

Result<ListenSocket> listen_tcp(const std::string& host, uint16_t port, Sharing sharing) {
  STATOR_TRY(const SocketAddress address, parse_address(host, port));
  if (sharing == Sharing::kExclusive && port != 0) {
    // A second process of the same user could join a SO_REUSEPORT port unnoticed and take half of
    // our connections; a socket without the option finds out. It closes again at once.
    STATOR_TRY(const FileDescriptor probe, bind_tcp(address, host, port, Sharing::kExclusive));
    if (::listen(probe.get(), 1) != 0) {
      return bind_error(errno, host, port);
    }
  }
  FileDescriptor fd;
  for (int tries = 1;; ++tries) {
    STATOR_TRY(fd, bind_tcp(address, host, port, Sharing::kJoin));
    if (::listen(fd.get(), kBacklog) == 0) {
      break;
    }
    // A port of the kernel's choice may be taken by another process before we listen on it.
    if (port != 0 || errno != EADDRINUSE || tries == kPortTriesMax) {
      return bind_error(errno, host, port);
    }
  }
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  if (::getsockname(fd.get(), std::bit_cast<sockaddr*>(&bound), &length) != 0) {
    return Error(Code::kIo, "asking for the bound port: " + error_text(errno));
  }
  ListenSocket result;
  result.fd = std::move(fd);
  // sin_port and sin6_port are at the same place.
  result.port = ntohs(std::bit_cast<const sockaddr_in*>(&bound)->sin_port);
  return result;
}

std::string peer_address(int fd) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  char host[INET6_ADDRSTRLEN] = "";
  if (::getpeername(fd, std::bit_cast<sockaddr*>(&peer), &length) != 0) {
    return {};
  }
  const auto* v4 = std::bit_cast<const sockaddr_in*>(&peer);
  const auto* v6 = std::bit_cast<const sockaddr_in6*>(&peer);
  const void* address = peer.ss_family == AF_INET ? static_cast<const void*>(&v4->sin_addr)
                                                  : static_cast<const void*>(&v6->sin6_addr);
  ::inet_ntop(peer.ss_family, address, host, sizeof(host));
  return place(host, ntohs(v4->sin_port));
}

Accepted accept_tcp(int listener) {
  for (;;) {
    FileDescriptor fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.open()) {
      // Tokens leave when written; a failure costs latency only.
      set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY).ignore("latency only");
      return {std::move(fd), 0};
    }
    switch (errno) {
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
        continue;  // that one is gone, the next may be fine
      case EAGAIN:
        return {};
      default:
        return {{}, errno};
    }
  }
}

}  // namespace stator::net::detail
