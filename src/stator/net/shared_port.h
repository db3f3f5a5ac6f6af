// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/result.h"

namespace stator::net {

namespace detail {
struct ListenSocket;
}
class Shard;

/// The listening sockets of one port, shared by processes of one user that serve it beside each
/// other or one after the other.
///
///   A binds ──► B inherits A's sockets ──► both accept ──► A ends: B has the sockets, and C
///                                                                          may join
///
/// Why sockets are passed on: whoever closes a SO_REUSEPORT socket resets the connections in its
/// queue and those in mid-handshake, whatever others listen. A socket that somebody still holds
/// loses none.
///
/// The processes know each other through a Unix socket in the abstract namespace, which is as local
/// as the port: its name holds user, host and port. Its owner is the head and hands the
/// sockets out, to the same user only; the others keep a connection to it, and when that ends one
/// of them becomes the head.
///
/// L1  The sockets of a port are bound once; nobody who joins adds one.
/// L2  At most kMembersMax processes wait behind the head; further ones are not let in.
///
/// `open` before the loops run; `others_accept` from any thread; all else on the loop of `attach`.
class SharedPort {
 public:
  static constexpr size_t kMembersMax = 64;

  struct Options {
    std::string host;
    uint16_t port = 0;     ///< 0: any free one
    uint32_t sockets = 1;  ///< to bind, one per shard; inherited ones are as many as they are
    /// Take over the sockets of a process that serves the port already, if there is one.
    bool join = false;
  };
  /// kAlreadyExists when somebody has the port and does not hand it out (or `join` is off), else as
  /// HttpServer::listen. Waits up to a second for another process to answer.
  static Result<std::unique_ptr<SharedPort>> open(const Options& options, Metrics& metrics);
  ~SharedPort();
  SharedPort(const SharedPort&) = delete;
  SharedPort& operator=(const SharedPort&) = delete;

  uint16_t port() const;
  /// Somebody else serves the port, or did a moment ago.
  bool joined() const;
  /// Own descriptors of what shard `shard` of `shards` is to accept from: at least one.
  Result<std::vector<detail::ListenSocket>> sockets_of(uint32_t shard, uint32_t shards) const;

  /// Hands sockets out from now on. The shard outlives leave().
  void attach(Shard& shard);
  /// This process accepts: another one may leave it the port.
  void announce_accepting();
  /// True while another process that shares the port accepts.
  bool others_accept() const;
  /// Hands out nothing more and gives the own sockets up. Idempotent; the destructor does not need
  /// a loop if this was called, or attach was not.
  void leave();

 private:
  class Impl;

 public:  // for make_unique; Impl is private, so nobody else can call it
  explicit SharedPort(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;  // shared with waits that complete later
};

}  // namespace stator::net
