// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/keyed_map.h"

namespace stator::router {

/// Where a session's requests go. Shared by the table and by the session's running requests, which
/// keep it from expiring; the atomics are written by whichever thread ends them.
struct SessionBinding {
  WorkerKey worker;
  std::atomic<int64_t> idle_since_ns{0};  ///< end of the last request
  std::atomic<bool> failed{false};        ///< its worker failed a request: choose anew
};

struct SessionConfig {
  Duration ttl{};  ///< a session idle for longer is forgotten; zero: no affinity at all
  uint32_t sessions_max = 65'536;
};

/// Session affinity: the requests of one session go to the worker that served it last, while it can
/// take them. A pure core; one thread at a time.
///
/// A binding is made with the first decision, so that concurrent requests of a new session already
/// meet at one worker; a failure (not a cancellation) breaks it, and the next request chooses anew.
///
/// S1  At most sessions_max bindings; at the bound new sessions are routed without one.
/// S2  A binding is not forgotten while a request of its session runs.
class SessionTable {
 public:
  static constexpr size_t kIdBytesMax = 256;

  explicit SessionTable(const SessionConfig& config) : config_(config) {}

  bool enabled() const { return config_.ttl > Duration::zero(); }
  /// The binding of a live session; null when there is none, or it is broken or expired.
  std::shared_ptr<SessionBinding> find(std::string_view session, TimePoint now) const;
  /// Binds the session to `worker`, replacing what there was. Null when the id is too long or the
  /// table is full; both are counted in refused().
  std::shared_ptr<SessionBinding> bind(std::string_view session, WorkerKey worker, TimePoint now);

  /// Its client said that nothing more comes. False when it has no binding.
  bool forget(std::string_view session);

  size_t size() const { return bindings_.size(); }
  uint64_t refused() const { return refused_; }

 private:
  bool expired(const std::shared_ptr<SessionBinding>& binding, TimePoint now) const;
  void reap(TimePoint now);

  const SessionConfig config_;
  KeyedMap<std::shared_ptr<SessionBinding>> bindings_;
  TimePoint reaped_{};
  uint64_t refused_ = 0;
};

}  // namespace stator::router
