// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/kv/event_log.h"
#include "stator/router/index/index_config.h"
#include "stator/router/index/index_service.h"
#include "stator/services/event_feed.h"
#include "stator/services/event_json.h"

namespace stator::services {

/// What isolates index, load and queue from one another.
struct PartitionName {
  std::string model;
  std::string group = "default";
  friend auto operator<=>(const PartitionName&, const PartitionName&) = default;
  /// "model:group".
  std::string text() const { return model + ":" + group; }
};

struct IndexerConfig {
  router::IndexConfig index;
  /// Blocks per worker kept by their own ids, for dumps; about 40 bytes each. What is beyond is
  /// missing from dumps, not from scores.
  uint64_t dump_blocks_max = 1ULL << 20;
  uint32_t partitions_max = 1024;
  uint32_t workers_max = 65'536;  ///< (worker, rank) pairs of all partitions
};

/// Which worker holds what, for several models at once, fed by event feeds and by dumps of peers.
/// Thread-safe; lookups take a lock only to find their partition.
class Indexer {
 public:
  Indexer(IndexerConfig config, EventFeeds& feeds, const Clock& clock, Metrics& metrics);
  Indexer(const Indexer&) = delete;
  Indexer& operator=(const Indexer&) = delete;
  ~Indexer();

  /// Follows a worker's events. kAlreadyExists when this (worker, rank) is followed already, or the
  /// partition has another block size; kOverloaded beyond the bounds.
  Status follow(const PartitionName& name, const FeedSpec& spec);
  /// Forgets the worker, all its ranks unless one is named. kNotFound.
  Status unfollow(const PartitionName& name, WorkerId worker, std::optional<uint32_t> rank);
  /// Takes events of workers that are not followed, too: they are recovered from a peer's dump.
  Status apply(const PartitionName& name, uint32_t block_size, const WorkerEvent& event);

  /// Until release(), what feeds deliver waits, so that a peer's dump can be applied below it:
  /// events newer than the dump then win. Before the first request.
  void hold();
  void release();

  struct Listener {
    PartitionName partition;
    FeedSpec spec;
    std::string_view status;
  };
  std::vector<Listener> listeners() const;
  std::vector<PartitionName> partitions() const;

  /// Block size of a partition; kNotFound.
  Result<uint32_t> block_size(const PartitionName& name) const;
  /// Longest match per (worker, rank).
  Result<std::vector<router::Overlap>> find(const PartitionName& name,
                                            std::span<const blocks::SequenceHash> sequences) const;

  /// The index of a partition, made if need be; kAlreadyExists for another block size.
  Result<std::shared_ptr<router::KvIndex>> index(const PartitionName& name, uint32_t block_size);

  struct PartitionDump {
    PartitionName name;
    uint32_t block_size = 0;
    std::vector<WorkerEvent> events;  ///< stores only, parents before children
  };
  std::vector<PartitionDump> dump() const;

 private:
  /// One (worker, rank). Its feed goes before its log.
  struct Member {
    FeedSpec spec;
    std::unique_ptr<kv::EventLog> log;
    std::unique_ptr<EventFeed> feed;  // null: recovered from a dump
    bool leaving = false;             // its feed is being ended
  };
  struct Partition {
    uint32_t block_size = 0;
    std::unique_ptr<router::IndexService> index;
    std::map<WorkerKey, Member> members;
  };
  using Shared = std::shared_ptr<Partition>;  // shared with lookups and deliveries under way

  Result<Shared> partition(const PartitionName& name, uint32_t block_size) STATOR_REQUIRES(mutex_);
  Result<Member*> member(Partition& partition, const FeedSpec& spec) STATOR_REQUIRES(mutex_);
  void forget(Partition& partition, WorkerKey worker) STATOR_REQUIRES(mutex_);
  Shared find_partition(const PartitionName& name) const STATOR_REQUIRES(mutex_);
  struct Held {
    router::IndexService* index;
    kv::EventLog* log;
    WorkerKey worker;
    std::vector<kv::KvEvent> events;
  };
  void deliver(Held delivery) STATOR_EXCLUDES(hold_mutex_);
  static void take(router::IndexService& index, kv::EventLog& log, WorkerKey worker,
                   const kv::KvEvent& event);
  void refresh_gauges() STATOR_REQUIRES(mutex_);

  const IndexerConfig config_;
  EventFeeds& feeds_;
  const Clock& clock_;
  Metrics& metrics_;
  Gauge models_, workers_, listening_;
  mutable Mutex mutex_;
  std::map<PartitionName, Shared> partitions_ STATOR_GUARDED_BY(mutex_);
  size_t member_count_ STATOR_GUARDED_BY(mutex_) = 0;

  Counter held_dropped_;
  Mutex hold_mutex_;
  bool holding_ STATOR_GUARDED_BY(hold_mutex_) = false;
  std::vector<Held> held_ STATOR_GUARDED_BY(hold_mutex_);  // at most kHeldMax
};

}  // namespace stator::services
