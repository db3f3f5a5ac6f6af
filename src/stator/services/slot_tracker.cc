// SPDX-License-Identifier: Apache-2.0
#include "stator/services/slot_tracker.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/router/replica_view.h"

namespace stator::services {
namespace {

constexpr size_t kPartitionsMax = 1024;
constexpr size_t kSlotsMax = 65'536;  // (worker, rank) pairs of all partitions
constexpr uint32_t kRanksMax = 4096;

}  // namespace

SlotTracker::SlotTracker(ReservationConfig config, const Clock& clock, Metrics& metrics)
    : config_(config),
      clock_(clock),
      workers_(metrics.gauge("stator_slot_tracker_workers", "workers registered")),
      requests_(metrics.gauge("stator_slot_tracker_requests", "requests booked")) {}

Result<SlotTracker::Partition*> SlotTracker::find(const PartitionName& name) const {
  const auto known = partitions_.find(name);
  if (known == partitions_.end()) {
    return Error(Code::kNotFound,
                 fmt::format("no worker of model '{}', routing group '{}', has registered",
                             name.model, name.group));
  }
  return known->second.get();
}

Status SlotTracker::add_worker(const PartitionName& name, const Worker& worker) {
  if (worker.block_size == 0 || worker.dp_size == 0 || worker.dp_size > kRanksMax) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("block_size and dp_size must be at least 1, dp_size at most {}", kRanksMax));
  }
  const MutexLock lock(mutex_);
  if (slot_count_ + worker.dp_size > kSlotsMax) {
    return Error(Code::kOverloaded, fmt::format("more than {} workers and ranks", kSlotsMax));
  }
  auto& partition = partitions_[name];
  if (partition == nullptr) {
    if (partitions_.size() > kPartitionsMax) {
      partitions_.erase(name);
      return Error(Code::kOverloaded,
                   fmt::format("more than {} models and routing groups", kPartitionsMax));
    }
    partition = std::make_unique<Partition>(clock_, config_);
    partition->block_size = worker.block_size;
    if (announcer_) {
      partition->book->announce_to(announcer_(name.text()));
    }
  }
  if (partition->block_size != worker.block_size) {
    return Error(Code::kAlreadyExists,
                 fmt::format("'{}' has blocks of {} tokens, not {}", name.text(),
                             partition->block_size, worker.block_size));
  }
  if (!partition->workers.emplace(worker.id, worker).second) {
    return Error(Code::kAlreadyExists, fmt::format("worker {} is registered", worker.id.value()));
  }
  for (uint32_t rank = 0; rank < worker.dp_size; ++rank) {
    partition->slots.emplace(WorkerKey{worker.id, worker.dp_start + rank},
                             partition->book->add_worker());
  }
  slot_count_ += worker.dp_size;
  workers_.add(1);
  return {};
}

void SlotTracker::announce_to(MakeAnnouncer announcer) {
  announcer_ = std::move(announcer);
}

std::optional<router::LoadLease> SlotTracker::book_for_replica(
    const router::ReplicaBooking& booking) {
  const MutexLock lock(mutex_);
  const auto partition = std::ranges::find(partitions_, booking.model,
                                           [](const auto& entry) { return entry.first.text(); });
  if (partition == partitions_.end() || partition->second->block_size != booking.block_size) {
    return std::nullopt;
  }
  const auto slot = partition->second->slots.find(booking.worker);
  if (slot == partition->second->slots.end()) {
    return std::nullopt;
  }
  return partition->second->book->take(router::booking_of(booking, slot->second));
}

Status SlotTracker::remove_worker(const PartitionName& name, WorkerId worker) {
  const MutexLock lock(mutex_);
  STATOR_TRY(Partition* const partition, find(name));
  if (partition->workers.erase(worker) == 0) {
    return Error(Code::kNotFound, fmt::format("worker {} is not registered", worker.value()));
  }
  slot_count_ -= std::erase_if(partition->slots, [&](const auto& entry) {
    const bool its = entry.first.worker == worker;
    if (its) {
      partition->book->remove_worker(entry.second);
    }
    return its;
  });
  workers_.add(-1);
  return {};
}

std::vector<std::pair<PartitionName, SlotTracker::Worker>> SlotTracker::workers() const {
  std::vector<std::pair<PartitionName, Worker>> all;
  const MutexLock lock(mutex_);
  for (const auto& [name, partition] : partitions_) {
    for (const auto& [id, worker] : partition->workers) {
      all.emplace_back(name, worker);
    }
  }
  return all;
}

Status SlotTracker::add(const PartitionName& name, const Request& request) {
  const MutexLock lock(mutex_);
  STATOR_TRY(Partition* const partition, find(name));
  const auto slot = partition->slots.find(request.worker);
  if (slot == partition->slots.end()) {
    return Error(Code::kNotFound,
                 fmt::format("worker {} rank {} is not registered for '{}'",
                             request.worker.worker.value(), request.worker.dp_rank, name.text()));
  }
  if (partition->requests.contains(request.id)) {
    return Error(Code::kAlreadyExists, fmt::format("request '{}' is booked already", request.id));
  }
  const uint64_t tokens = request.blocks.size() * partition->block_size;
  router::LoadLease lease = partition->book->take(
      {.slot = slot->second,
       .prompt_tokens = static_cast<uint32_t>(std::min<uint64_t>(tokens, UINT32_MAX)),
       .block_size = partition->block_size,
       .prefill_tokens = request.prefill_tokens,
       .prompt = request.blocks,
       .worker = request.worker});
  STATOR_CHECK(partition->requests.add(request.id, std::move(lease), clock_.now()));
  requests_.set(static_cast<double>(partition->requests.size()));
  return {};
}

Status SlotTracker::mark_prefill_completed(const PartitionName& name, std::string_view id) {
  const MutexLock lock(mutex_);
  STATOR_TRY(Partition* const partition, find(name));
  return partition->requests.mark_prefill_completed(id);
}

Status SlotTracker::free(const PartitionName& name, std::string_view id) {
  const MutexLock lock(mutex_);
  STATOR_TRY(Partition* const partition, find(name));
  partition->requests.remove(id).ignore("one that is gone, freed or expired, is what is wanted");
  requests_.set(static_cast<double>(partition->requests.size()));
  return {};
}

std::vector<PartitionLoads> SlotTracker::loads(const PartitionFilter& filter) const {
  const MutexLock lock(mutex_);
  std::vector<PartitionLoads> all;
  for (const auto& [name, partition] : partitions_) {
    if (filter.matches(name)) {
      partition->requests.expire(clock_.now());
      all.push_back({name, project(*partition, {}, 0)});
    }
  }
  return all;
}

Result<std::vector<SlotLoad>> SlotTracker::potential_loads(
    const PartitionName& name, std::span<const blocks::SequenceHash> blocks,
    uint32_t prefill_tokens) const {
  const MutexLock lock(mutex_);
  STATOR_TRY(Partition* const partition, find(name));
  partition->requests.expire(clock_.now());
  return project(*partition, blocks, prefill_tokens);
}

std::vector<SlotLoad> SlotTracker::project(const Partition& partition,
                                           std::span<const blocks::SequenceHash> blocks,
                                           uint32_t prefill_tokens) const {
  std::vector<uint32_t> held;
  partition.book->read_held(blocks, held);
  std::vector<SlotLoad> loads;
  for (const auto& [worker, slot] : partition.slots) {
    router::LoadRow row;
    partition.book->read(std::span(&slot, 1), std::span(&row, 1));
    loads.push_back(
        {.worker = worker,
         .prefill_tokens = static_cast<uint64_t>(row.prefill_tokens) + prefill_tokens,
         .decode_blocks = static_cast<uint64_t>(row.active_blocks) + blocks.size() - held[slot],
         .requests = static_cast<uint64_t>(row.active_requests)});
  }
  return loads;
}

}  // namespace stator::services
