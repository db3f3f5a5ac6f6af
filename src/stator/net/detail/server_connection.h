// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "stator/core/clock.h"
#include "stator/net/byte_budget.h"
#include "stator/net/http_server.h"

namespace stator::net::detail {

/// An exchange of a socket; see client_is_local().
class KnowsClient {
 public:
  virtual bool from_this_host() = 0;

 protected:
  ~KnowsClient() = default;
};

/// One client's connection as its server sees it, in whatever version of HTTP. All output leaves in
/// flush(), which the server calls at the end of a turn or on a flush tick, or the connection when
/// its socket becomes writable.
class ServerConnection {
 public:
  ServerConnection() = default;
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;
  virtual ~ServerConnection() = default;

  /// Sends what is due; at the end of a turn.
  virtual void flush_turn() = 0;
  /// Sends what is there, recently flushed or not.
  virtual void flush() = 0;
  /// Ends what has waited too long.
  virtual void check_deadlines(TimePoint now) = 0;
  /// Closes unless a request is under way, or the first one may be, which must come soon.
  virtual void close_if_idle() = 0;
  virtual void close_now(ClientGone reason) = 0;
  /// Body bytes that have come, of its largest request that is not complete; since when.
  virtual Holding held_body() const = 0;
  /// Gives the room of that body to others; while it receives one.
  virtual void refuse_for_room() = 0;
  /// Output that the client has not taken; since when it takes none.
  virtual Holding held_output() const = 0;
  virtual void drop_slow_client() = 0;
  virtual bool is_closed() const = 0;

  size_t position = 0;  ///< in the server's list
};

/// The host of the client at the other end of `fd`, without its port. One system call.
std::string client_host(int fd);

/// Whether `client` is this host, as far as one can see: not what a proxy on this host passed on
/// and said so.
bool comes_from_this_host(const HttpRequest& request, const std::string& client);

}  // namespace stator::net::detail
