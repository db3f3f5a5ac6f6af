// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <fstream>
#include <random>

namespace stator::kv_events::test {

/// A loopback port that was free a moment ago, for a server that comes back on it. It lies below
/// the range from which the kernel gives ports to connections, so none takes it in between.
inline uint16_t free_port() {
  int end = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  std::random_device random;
  std::uniform_int_distribution<int> any(end > 20'000 ? 10'000 : 1'024, end - 1);
  while (true) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(any(random)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = ::bind(probe, std::bit_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    ::close(probe);
    if (free) {
      return ntohs(address.sin_port);
    }
  }
}

}  // namespace stator::kv_events::test
