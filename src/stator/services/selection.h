// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/router/replica_log.h"
#include "stator/router/router.h"
#include "stator/services/indexer.h"
#include "stator/services/prompt_fields.h"
#include "stator/services/replay_cache.h"
#include "stator/services/reservations.h"
#include "stator/services/scores.h"
#include "stator/services/selection_worker.h"
#include "stator/services/slot_tracker.h"

namespace stator::services {

struct SelectionConfig {
  router::RouterConfig router;
  ReplayCacheConfig replay;
  ReservationConfig reservations;
  uint32_t workers_max = 16'384;
};

/// One request that wants a worker, or load booked for it.
struct SelectionRequest {
  PartitionName partition;
  PromptFields prompt;
  std::string selection_id;
  router::CostOverride override;
  std::optional<uint32_t> expected_output_tokens;
  std::optional<WorkerId> pinned;
  std::optional<uint32_t> pinned_rank;
  std::vector<WorkerId> allowed;
  std::vector<std::string> required_taints;
  std::vector<std::pair<std::string, float>> preferred_taints;
  std::optional<uint32_t> prefill_tokens;  ///< of a booking; authoritative
};

struct SelectionAnswer {
  std::string selection_id;
  PartitionName partition;
  WorkerKey worker;
  std::string endpoint;
  uint32_t block_size = 0;
  InstanceScore overlap;  ///< of the chosen worker's instance, in tokens
  uint32_t prefill_tokens = 0;
  uint64_t potential_blocks = 0;  ///< in use there once the request runs there
  uint32_t isl_tokens = 0;
  bool track_prefill = true;
  std::vector<blocks::SequenceHash> tracked;
};

/// Chooses workers for gateways that send the requests themselves: a catalog of workers, the same
/// Router and index a frontend uses, and the load of what was booked. Thread-safe; one lock.
///
/// B1  A selection books nothing; reserve() chooses and books in one step.
/// B2  A booking holds its load until it is freed or expires.
class SelectionService {
 public:
  SelectionService(SelectionConfig config, Indexer& indexer, const Clock& clock, Random random);

  /// Before the first worker: whom to tell what is booked.
  void announce_to(MakeAnnouncer announcer);
  /// Books what another service booked; none while the worker is not schedulable here.
  std::optional<router::LoadLease> book_for_replica(const router::ReplicaBooking& booking);

  /// Makes or replaces a worker (`fresh`), or changes what the fields say of a known one.
  enum class Write : uint8_t { kUpsert, kPatch };
  Result<std::string> write_worker(WorkerId id, const Fields& fields, Write write);
  /// The same for one that was found through discovery and whose events come by Indexer::apply.
  Status put_worker(SelectionWorker worker);
  /// Returns what it was, as JSON.
  Result<std::string> remove_worker(WorkerId id);
  /// JSON array.
  std::string list_workers(const PartitionFilter& filter = {}) const;

  struct Readiness {
    size_t schedulable = 0;
    std::string workers;  ///< JSON array: all, with what they lack
  };
  Readiness readiness() const;

  Result<SelectionAnswer> select(const SelectionRequest& request);
  Result<SelectionAnswer> reserve(SelectionRequest request);
  /// Books what /select chose under this id; the id is used up by success.
  Result<SelectionAnswer> reserve_selected(const PartitionName& partition, std::string_view id);
  /// Books for a worker the gateway chose itself.
  Result<SelectionAnswer> reserve_at(WorkerKey worker, SelectionRequest request);

  Status mark_prefill_completed(std::string_view id);
  Status add_output_block(std::string_view id, std::optional<double> weight);
  Status free(std::string_view id);

  std::vector<PartitionLoads> loads(const PartitionFilter& filter) const;
  Result<std::vector<SlotLoad>> potential_loads(const SelectionRequest& request);
  /// JSON: what each worker and rank has of the prompt, in blocks by tier.
  Result<std::string> overlap_scores(const SelectionRequest& request);

 private:
  struct Partition {
    uint32_t block_size = 0;
    std::shared_ptr<router::LoadBook> book;  // shared with leases
    std::unique_ptr<router::Router> router;
    std::shared_ptr<router::KvIndex> index;  // the indexer's, shared with it
  };
  struct Prepared;

  Result<Partition*> find(const PartitionName& name) const STATOR_REQUIRES(mutex_);
  Result<Partition*> open(const PartitionName& name, uint32_t block_size) STATOR_REQUIRES(mutex_);
  Status enroll(const SelectionWorker& worker) STATOR_REQUIRES(mutex_);
  Result<std::string> replace(SelectionWorker worker) STATOR_REQUIRES(mutex_);
  void withdraw(const SelectionWorker& worker) STATOR_REQUIRES(mutex_);
  Result<Prepared> prepare(const SelectionRequest& request) const STATOR_EXCLUDES(mutex_);
  Result<SelectionAnswer> choose(const SelectionRequest& request, const Prepared& prepared)
      STATOR_REQUIRES(mutex_);
  SelectionAnswer describe(const SelectionRequest& request, const Prepared& prepared,
                           WorkerKey worker, uint32_t prefill_tokens) const STATOR_REQUIRES(mutex_);
  Result<SelectionAnswer> book(SelectionAnswer answer, const SelectionRequest& request,
                               const Prepared& prepared) STATOR_REQUIRES(mutex_);
  std::string make_id() STATOR_REQUIRES(mutex_);
  std::string render_workers(const PartitionFilter& filter) const STATOR_REQUIRES(mutex_);

  const SelectionConfig config_;
  const WorkerRules rules_;
  Indexer& indexer_;
  const Clock& clock_;
  MakeAnnouncer announcer_;
  mutable Mutex mutex_;
  Random random_ STATOR_GUARDED_BY(mutex_);
  std::map<WorkerId, SelectionWorker> workers_ STATOR_GUARDED_BY(mutex_);
  std::map<PartitionName, std::unique_ptr<Partition>> partitions_ STATOR_GUARDED_BY(mutex_);
  ReplayCache replay_ STATOR_GUARDED_BY(mutex_);
  mutable Reservations reservations_ STATOR_GUARDED_BY(mutex_);
};

/// Adds the endpoints of the selection service: /workers, /ready, /select, /select_and_reserve,
/// /reservations, /loads, /potential_loads, /overlap_scores, /dump, /events.
void add_selection_endpoints(ServiceApi& api, SelectionService& service, Indexer& indexer);

}  // namespace stator::services
