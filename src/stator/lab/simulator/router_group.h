// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/router/dispatcher.h"

namespace stator::simulator {

/// The routers, each with its queue, in front of one pool of workers: one, or several replicas
/// behind a load balancer. Replicas take turns with the requests and learn of each other's bookings
/// as frontends do, from the same logs and views, once per `router.replicas.interval` of virtual
/// time. All see the workers' KV events when they happen, so replicas differ in what they know of
/// the load. A pure core.
///
///   STATOR_TRY(auto routers, RouterGroup::create(8, config, seed, clock));
///   STATOR_TRY(auto submitted, routers->submit(request, hints, wall_now));
///   … at routers->next_sync(): routers->sync(now);
class RouterGroup {
 public:
  using Id = router::Dispatcher::Id;  // of a request that waits, unique in the group
  using Outcome = router::Dispatcher::Outcome;

  /// Whether workers tell of blocks below the device, too: then the index is that of frontends.
  enum class Tiers : uint8_t { kDevice, kAll };
  /// kInvalidArgument for 0 replicas and for what Router::create refuses. `clock` outlives it.
  static Result<std::unique_ptr<RouterGroup>> create(uint32_t replicas,
                                                     const router::RouterConfig& config,
                                                     uint64_t seed, const Clock& clock,
                                                     Tiers tiers = Tiers::kDevice);
  ~RouterGroup();

  void add_worker(WorkerKey worker, const router::WorkerFacts& facts);
  void remove_worker(WorkerKey worker);
  void set_draining(WorkerKey worker, bool draining);
  void apply(WorkerKey worker, const kv::KvEvent& event);

  /// As of Dispatcher, by the replica whose turn it is; what waits, waits at that one.
  Result<std::variant<router::Decision, Id>> submit(const router::RouteRequest& request,
                                                    const router::QueueHints& hints, WallTime wall);
  std::optional<Outcome> next(TimePoint now, WallTime wall);
  std::vector<Outcome> expire(TimePoint now);
  bool remove(Id id);

  /// When replicas will hear something new from each other; none while there is nothing new.
  std::optional<TimePoint> next_sync() const;
  /// Every replica hears everything.
  void sync(TimePoint now);

  /// Sum of all bookings, those heard of included; 0 when idle and in sync.
  int64_t booked() const;

 private:
  struct Replica;
  explicit RouterGroup(Duration interval);
  uint64_t told() const;
  Id group_id(Id id, size_t replica) const { return id * replicas_.size() + replica; }

  const Duration interval_;
  Metrics metrics_;                                 // of the index, read by nobody
  std::vector<std::unique_ptr<Replica>> replicas_;  // the first one's index serves all
  size_t turn_ = 0;
  TimePoint synced_at_{};
  uint64_t synced_ = 0;  // what had been told then
};

}  // namespace stator::simulator
