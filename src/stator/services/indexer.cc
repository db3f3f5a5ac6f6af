// SPDX-License-Identifier: Apache-2.0
#include "stator/services/indexer.h"

#include <fmt/format.h>

#include <variant>

namespace stator::services {
namespace {

constexpr size_t kHeldMax = 100'000;  // deliveries, while a dump is fetched: seconds

}  // namespace

Indexer::Indexer(IndexerConfig config, EventFeeds& feeds, const Clock& clock, Metrics& metrics)
    : config_(std::move(config)),
      feeds_(feeds),
      clock_(clock),
      metrics_(metrics),
      models_(metrics.gauge("dynamo_kvindexer_models", "(model, routing group) pairs")),
      workers_(metrics.gauge("dynamo_kvindexer_workers", "workers known, each rank for itself")),
      listening_(metrics.gauge("dynamo_kvindexer_listeners", "workers whose events are followed")),
      held_dropped_(metrics.counter("dynamo_kvindexer_held_dropped_total",
                                    "deliveries dropped while a peer's dump was fetched")) {}

Indexer::~Indexer() {
  // Feeds wait for the delivery under way, which must not find a lock held by us.
  std::map<PartitionName, Shared> gone;
  const MutexLock lock(mutex_);
  gone.swap(partitions_);
}

Result<Indexer::Shared> Indexer::partition(const PartitionName& name, uint32_t block_size) {
  if (block_size == 0) {
    return Error(Code::kInvalidArgument, "block_size must be at least 1");
  }
  if (const auto known = partitions_.find(name); known != partitions_.end()) {
    if (known->second->block_size != block_size) {
      return Error(Code::kAlreadyExists,
                   fmt::format("'{}' has blocks of {} tokens, not {}", name.text(),
                               known->second->block_size, block_size));
    }
    return known->second;
  }
  if (partitions_.size() >= config_.partitions_max) {
    return Error(Code::kOverloaded,
                 fmt::format("more than {} models and routing groups", config_.partitions_max));
  }
  auto made = std::make_shared<Partition>();
  made->block_size = block_size;
  STATOR_TRY(made->index, router::IndexService::create(config_.index, clock_, metrics_));
  partitions_.emplace(name, made);
  return made;
}

Result<Indexer::Member*> Indexer::member(Partition& partition, const FeedSpec& spec) {
  if (const auto known = partition.members.find(spec.worker); known != partition.members.end()) {
    return &known->second;
  }
  if (member_count_ >= config_.workers_max) {
    return Error(Code::kOverloaded, fmt::format("more than {} workers", config_.workers_max));
  }
  ++member_count_;
  partition.index->add_worker(spec.worker);
  const kv::EventLog::Limits limits{
      .events_max = 1, .blocks_max = config_.dump_blocks_max, .listeners_max = 1};
  Member member{.spec = spec, .log = std::make_unique<kv::EventLog>(spec.worker.dp_rank, limits)};
  return &partition.members.emplace(spec.worker, std::move(member)).first->second;
}

void Indexer::forget(Partition& partition, WorkerKey worker) {
  partition.index->remove_worker(worker);
  partition.members.erase(worker);
  --member_count_;
}

Indexer::Shared Indexer::find_partition(const PartitionName& name) const {
  const auto known = partitions_.find(name);
  return known == partitions_.end() ? nullptr : known->second;
}

void Indexer::take(router::IndexService& index, kv::EventLog& log, WorkerKey worker,
                   const kv::KvEvent& event) {
  (void)index.apply(worker, event);
  log.append(std::vector{event});
}

void Indexer::deliver(Held delivery) {
  {
    const MutexLock lock(hold_mutex_);
    if (holding_) {
      if (held_.size() < kHeldMax) {
        held_.push_back(std::move(delivery));
      } else {
        held_dropped_.add();
      }
      return;
    }
  }
  for (const kv::KvEvent& event : delivery.events) {
    take(*delivery.index, *delivery.log, delivery.worker, event);
  }
}

void Indexer::hold() {
  const MutexLock lock(hold_mutex_);
  holding_ = true;
}

void Indexer::release() {
  const MutexLock lock(hold_mutex_);
  for (const Held& delivery : held_) {
    for (const kv::KvEvent& event : delivery.events) {
      take(*delivery.index, *delivery.log, delivery.worker, event);
    }
  }
  held_ = {};
  holding_ = false;
}

Status Indexer::follow(const PartitionName& name, const FeedSpec& spec) {
  STATOR_CHECK(check_endpoint(spec.endpoint));
  const MutexLock lock(mutex_);
  STATOR_TRY(const Shared partition, this->partition(name, spec.block_size));
  const bool heard_of = partition->members.contains(spec.worker);
  STATOR_TRY(Member* const member, this->member(*partition, spec));
  if (member->feed != nullptr || member->leaving) {
    return Error(
        Code::kAlreadyExists,
        fmt::format("worker {} rank {} of '{}' is registered with {}", spec.worker.worker.value(),
                    spec.worker.dp_rank, name.text(), member->spec.endpoint));
  }
  member->spec = spec;
  // Index and log outlive the feed: see unfollow.
  auto feed = feeds_.open(spec, [this, index = partition->index.get(), log = member->log.get(),
                                 worker = spec.worker](std::vector<kv::KvEvent> events) {
    deliver({index, log, worker, std::move(events)});
  });
  if (!feed) {
    if (!heard_of) {
      forget(*partition, spec.worker);
    }
    return std::move(feed.error());
  }
  member->feed = std::move(*feed);
  refresh_gauges();
  return {};
}

Status Indexer::unfollow(const PartitionName& name, WorkerId worker, std::optional<uint32_t> rank) {
  std::vector<std::unique_ptr<EventFeed>> feeds;
  std::vector<WorkerKey> leaving;
  {
    const MutexLock lock(mutex_);
    if (const Shared partition = find_partition(name)) {
      for (auto& [key, member] : partition->members) {
        if (key.worker == worker && (!rank || key.dp_rank == *rank) && !member.leaving) {
          member.leaving = true;
          feeds.push_back(std::move(member.feed));
          leaving.push_back(key);
        }
      }
    }
  }
  if (leaving.empty()) {
    return Error(Code::kNotFound,
                 fmt::format("worker {} is not registered for '{}'", worker.value(), name.text()));
  }
  feeds.clear();  // waits for deliveries under way: not under the lock
  const MutexLock lock(mutex_);
  const Shared partition = find_partition(name);
  for (const WorkerKey key : leaving) {
    forget(*partition, key);
  }
  refresh_gauges();
  return {};
}

Status Indexer::apply(const PartitionName& name, uint32_t block_size, const WorkerEvent& event) {
  const MutexLock lock(mutex_);
  STATOR_TRY(const Shared partition, this->partition(name, block_size));
  STATOR_TRY(Member* const member,
             this->member(*partition, {.worker = event.worker, .block_size = block_size}));
  take(*partition->index, *member->log, event.worker, event.event);
  refresh_gauges();
  return {};
}

std::vector<Indexer::Listener> Indexer::listeners() const {
  std::vector<Listener> all;
  const MutexLock lock(mutex_);
  for (const auto& [name, partition] : partitions_) {
    for (const auto& [worker, member] : partition->members) {
      all.push_back(
          {name, member.spec, member.feed == nullptr ? "pending" : member.feed->status()});
    }
  }
  return all;
}

std::vector<PartitionName> Indexer::partitions() const {
  const MutexLock lock(mutex_);
  std::vector<PartitionName> names;
  for (const auto& [name, partition] : partitions_) {
    names.push_back(name);
  }
  return names;
}

Result<uint32_t> Indexer::block_size(const PartitionName& name) const {
  const MutexLock lock(mutex_);
  const Shared partition = find_partition(name);
  if (partition == nullptr) {
    return Error(Code::kNotFound,
                 fmt::format("no worker of model '{}', routing group '{}', has registered",
                             name.model, name.group));
  }
  return partition->block_size;
}

Result<std::vector<router::Overlap>> Indexer::find(
    const PartitionName& name, std::span<const blocks::SequenceHash> sequences) const {
  STATOR_TRY([[maybe_unused]] const uint32_t known, block_size(name));
  Shared partition;
  {
    const MutexLock lock(mutex_);
    partition = find_partition(name);
  }
  return partition->index->find_longest_match(sequences);
}

Result<std::shared_ptr<router::KvIndex>> Indexer::index(const PartitionName& name,
                                                        uint32_t block_size) {
  const MutexLock lock(mutex_);
  STATOR_TRY(const Shared partition, this->partition(name, block_size));
  return std::shared_ptr<router::KvIndex>(partition, partition->index.get());
}

std::vector<Indexer::PartitionDump> Indexer::dump() const {
  std::vector<PartitionDump> dumps;
  const MutexLock lock(mutex_);
  for (const auto& [name, partition] : partitions_) {
    PartitionDump& dump = dumps.emplace_back(PartitionDump{name, partition->block_size, {}});
    uint64_t id = 0;
    for (const auto& [worker, member] : partition->members) {
      for (kv::EventLog::Run& run : member.log->snapshot().stored) {
        dump.events.push_back({worker,
                               {.event_id = id++,
                                .dp_rank = worker.dp_rank,
                                .tier = run.tier,
                                .data = std::move(run)}});
      }
    }
  }
  return dumps;
}

void Indexer::refresh_gauges() {
  size_t listening = 0;
  for (const auto& [name, partition] : partitions_) {
    for (const auto& [worker, member] : partition->members) {
      listening += member.feed == nullptr ? 0 : 1;
    }
  }
  models_.set(static_cast<double>(partitions_.size()));
  workers_.set(static_cast<double>(member_count_));
  listening_.set(static_cast<double>(listening));
}

}  // namespace stator::services
