// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/server_connection.h"

#include <algorithm>
#include <string_view>

#include "stator/net/detail/socket.h"
#include "stator/net/loopback.h"

namespace stator::net::detail {

std::string client_host(int fd) {
  std::string address = peer_address(fd);
  address.resize(std::min(address.rfind(':'), address.size()));  // every connection has its port
  return address;
}

bool comes_from_this_host(const HttpRequest& request, const std::string& client) {
  for (const std::string_view passed_on : {"forwarded", "x-forwarded-for", "via"}) {
    if (request.header(passed_on)) {
      return false;
    }
  }
  return is_loopback_host(client);
}

}  // namespace stator::net::detail
