// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/router/load_lease.h"
#include "stator/router/replica_log.h"
#include "stator/services/prompt_fields.h"
#include "stator/services/reservations.h"
#include "stator/services/service_api.h"

namespace stator::services {

/// One worker and rank, and how loaded it is (or would be).
struct SlotLoad {
  WorkerKey worker;
  uint64_t prefill_tokens = 0;
  uint64_t decode_blocks = 0;
  uint64_t requests = 0;
};

/// Of the workers of one model and routing group, by worker and rank.
struct PartitionLoads {
  PartitionName name;
  std::vector<SlotLoad> loads;
};

/// The load of every worker as its gateways report it: who was sent what, whose prompt is computed,
/// who is done. Several models at once. Thread-safe.
class SlotTracker {
 public:
  SlotTracker(ReservationConfig config, const Clock& clock, Metrics& metrics);

  /// Before the first worker: whom to tell what is booked.
  void announce_to(MakeAnnouncer announcer);
  /// Books what another tracker booked; none while the worker is not registered here.
  std::optional<router::LoadLease> book_for_replica(const router::ReplicaBooking& booking);

  struct Worker {
    WorkerId id;
    uint32_t block_size = 0;
    uint32_t dp_start = 0;
    uint32_t dp_size = 1;
  };
  /// kAlreadyExists for a worker that is registered, or another block size; kInvalidArgument.
  Status add_worker(const PartitionName& name, const Worker& worker);
  /// Its requests' load goes with it. kNotFound.
  Status remove_worker(const PartitionName& name, WorkerId worker);
  std::vector<std::pair<PartitionName, Worker>> workers() const;

  struct Request {
    std::string_view id;
    WorkerKey worker;
    std::span<const blocks::SequenceHash> blocks;
    uint32_t prefill_tokens = 0;
  };
  /// kNotFound for an unknown worker, kAlreadyExists for a booked id.
  Status add(const PartitionName& name, const Request& request);
  Status mark_prefill_completed(const PartitionName& name, std::string_view id);
  /// Idempotent: an unknown id is fine, an unknown partition is kNotFound.
  Status free(const PartitionName& name, std::string_view id);

  std::vector<PartitionLoads> loads(const PartitionFilter& filter) const;
  /// The loads as they would be with this request at each worker.
  Result<std::vector<SlotLoad>> potential_loads(const PartitionName& name,
                                                std::span<const blocks::SequenceHash> blocks,
                                                uint32_t prefill_tokens) const;

 private:
  struct Partition {
    explicit Partition(const Clock& clock, ReservationConfig config)
        : book(router::LoadBook::make(clock)), requests(config) {}
    uint32_t block_size = 0;
    std::shared_ptr<router::LoadBook> book;  // shared with leases
    std::map<WorkerId, Worker> workers;
    std::map<WorkerKey, router::LoadSlot> slots;
    Reservations requests;
  };
  std::vector<SlotLoad> project(const Partition& partition,
                                std::span<const blocks::SequenceHash> blocks,
                                uint32_t prefill_tokens) const STATOR_REQUIRES(mutex_);
  Result<Partition*> find(const PartitionName& name) const STATOR_REQUIRES(mutex_);

  const ReservationConfig config_;
  const Clock& clock_;
  Gauge workers_, requests_;
  MakeAnnouncer announcer_;
  mutable Mutex mutex_;
  std::map<PartitionName, std::unique_ptr<Partition>> partitions_ STATOR_GUARDED_BY(mutex_);
  size_t slot_count_ STATOR_GUARDED_BY(mutex_) = 0;
};

/// Adds /register, /unregister, /workers, /add, /prefill_complete, /free, /loads, /potential_loads.
void add_slot_endpoints(ServiceApi& api, SlotTracker& tracker);

}  // namespace stator::services
