// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/keyed_map.h"
#include "stator/services/indexer.h"

namespace stator::services {

struct ReplayCacheConfig {
  Duration ttl = std::chrono::seconds(120);
  uint32_t entries_max = 4096;
  uint64_t bytes_max = 256ULL << 20;
};

/// What a selection was made from and what came out, so that it can be booked later by its id.
struct SelectionRecord {
  PartitionName partition;
  WorkerKey worker;
  uint32_t isl_tokens = 0;
  uint32_t prefill_tokens = 0;
  std::vector<blocks::SequenceHash> sequences;  ///< as the index knows them
  std::vector<blocks::SequenceHash> tracked;    ///< as load is booked
  std::optional<uint32_t> expected_output_tokens;
  bool track_prefill = true;
  bool assume_kv_reuse = true;

  uint64_t bytes() const {
    return sizeof(SelectionRecord) + partition.model.size() + partition.group.size() +
           (sequences.size() + tracked.size()) * sizeof(blocks::SequenceHash);
  }
};

/// Selections that may still be booked. Bounded in entries, bytes and age; the oldest goes first;
/// the latest with an id wins. A pure core, one thread at a time.
class ReplayCache {
 public:
  explicit ReplayCache(ReplayCacheConfig config) : config_(config) {}

  void put(std::string_view id, SelectionRecord record, TimePoint now);
  /// Null when unknown, used or expired. Stays until erase(): a booking that fails may be repeated.
  const SelectionRecord* find(std::string_view id, TimePoint now);
  void erase(std::string_view id);
  size_t size() const { return order_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string id;
    SelectionRecord record;
    TimePoint since;
    uint64_t bytes = 0;
  };
  void drop(std::list<Entry>::iterator entry);

  const ReplayCacheConfig config_;
  std::list<Entry> order_;  // oldest first
  KeyedMap<std::list<Entry>::iterator> by_id_;
  uint64_t bytes_ = 0;
};

}  // namespace stator::services
