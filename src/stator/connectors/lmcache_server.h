// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "stator/connectors/lmcache_values.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/io/file_descriptor.h"
#include "stator/net/thread.h"

namespace stator::connectors {

struct LmcacheServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  ///< 0: any free one
  uint32_t connections_max = 64;
  /// Values that are being received; a client that sends more waits.
  uint64_t receiving_bytes_max = uint64_t{1} << 30;
};

/// Answers LMCache's remote backend (`remote_url: "lm://HOST:PORT"`) out of a host's cache service.
///
/// A thread per connection: an engine's worker has one, and keeps it. A connection that sends what
/// no client sends, or stops in the middle of a message for kStall, is closed. There is no
/// authentication: LMCache's protocol has none.
class LmcacheServer {
 public:
  static constexpr Duration kStall = std::chrono::seconds(30);

  /// kIo: the address cannot be listened on. `cache` and `metrics` outlive it.
  static Result<std::unique_ptr<LmcacheServer>> open(const LmcacheServerOptions& options,
                                                     storage::CacheService& cache,
                                                     Metrics& metrics);
  /// Closes all connections.
  ~LmcacheServer();
  LmcacheServer(const LmcacheServer&) = delete;
  LmcacheServer& operator=(const LmcacheServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  struct Connection {
    io::FileDescriptor socket;
    std::atomic<bool> done{false};
    net::Thread thread;
  };

  LmcacheServer(const LmcacheServerOptions& options, storage::CacheService& cache, Metrics& metrics,
                io::FileDescriptor listener, uint16_t port);
  void accept_all();
  void serve(int socket);
  bool answer(int socket, const LmRequest& request);
  bool take(int socket, const LmRequest& request);
  bool reserve(uint64_t bytes);
  void give_back(uint64_t bytes);

  const LmcacheServerOptions options_;
  LmcacheValues values_;
  io::FileDescriptor listener_;
  const uint16_t port_;
  std::atomic<bool> stopping_{false};

  Mutex mutex_;
  std::condition_variable_any room_;
  std::list<Connection> connections_ STATOR_GUARDED_BY(mutex_);
  uint64_t receiving_bytes_ STATOR_GUARDED_BY(mutex_) = 0;

  Gauge open_;
  Counter refused_;
  Counter bad_;
  Counter requests_[5];  // by command − 1
  net::Thread acceptor_;
};

}  // namespace stator::connectors
