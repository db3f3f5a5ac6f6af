// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/storage/disk_tier.h"

namespace stator::storage {

struct CacheServiceOptions {
  uint64_t host_bytes = 0;
  std::string folder;         ///< empty: memory only
  uint64_t folder_bytes = 0;  ///< of all namespaces
};

/// Records of KV blocks that several engines of a host share: memory first, a disk folder behind it
/// that outlives the process. What `stator store` serves.
///
/// C1  A record is taken only if header and payload checksums are right and it is the block that it
///     is put as.
/// C2  Memory holds at most `host_bytes` of records; the least recently used goes first.
/// C3  Each namespace has a folder of its own, sized once: half of what is left of `folder_bytes`.
/// Thread-safety: all methods, any thread; get() and put() may wait for the disk.
class CacheService {
 public:
  CacheService(CacheServiceOptions options, Clock& clock, Metrics& metrics);

  /// Opens the namespaces whose folders are there. What cannot be opened is logged and left out.
  void recover();

  /// kCorrupt, kInvalidArgument: it is not what it is put as. kAlreadyExists: it is there.
  Status put(const Digest& space, const kv::LineageHash& name, std::string record);
  /// The record; shared, because it may be evicted while it is sent.
  Result<std::shared_ptr<const std::string>> get(const Digest& space, const kv::LineageHash& name);
  /// How many of the first blocks are there.
  size_t count(const Digest& space, std::span<const kv::LineageHash> names);
  struct Range {
    size_t first = 0;
    size_t behind = 0;  ///< the first that is not in it
    friend bool operator==(const Range&, const Range&) = default;
  };
  /// Which of the blocks are there in any namespace, for routers that know only hashes.
  std::vector<Range> ranges(std::span<const kv::LineageHash> names);

 private:
  struct Key {
    Digest space{};
    kv::LineageHash name;
    friend auto operator<=>(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H state,
                           const Key& key) {  // NOLINT(readability-identifier-naming): absl's hook
      return H::combine(std::move(state), key.space, key.name);
    }
  };
  struct Entry {
    Key key;
    std::shared_ptr<const std::string> record;  // shared with answers under way
  };
  void keep(const Key& key, std::shared_ptr<const std::string> record) STATOR_REQUIRES(mutex_);
  DiskTier* open_space(const Digest& space, uint64_t block_bytes, uint32_t block_tokens);
  std::optional<BlockName> on_disk(const Key& key) STATOR_REQUIRES(mutex_);
  void update_gauges() STATOR_REQUIRES(mutex_);

  const CacheServiceOptions options_;
  Clock& clock_;
  Metrics& metrics_;

  Mutex mutex_;
  std::list<Entry> entries_ STATOR_GUARDED_BY(mutex_);  // most recently used first
  FlatMap<Key, std::list<Entry>::iterator> by_key_ STATOR_GUARDED_BY(mutex_);
  uint64_t bytes_ STATOR_GUARDED_BY(mutex_) = 0;
  std::map<Digest, std::unique_ptr<DiskTier>> spaces_ STATOR_GUARDED_BY(mutex_);
  uint64_t folder_left_ STATOR_GUARDED_BY(mutex_);

  Gauge blocks_gauge_;
  Gauge bytes_gauge_;
  Counter puts_;
  Counter refused_;
  Counter hits_;
  Counter misses_;
  Counter evictions_;
};

/// Sixteen bytes of hex.
std::optional<Digest> parse_digest(std::string_view hex);

}  // namespace stator::storage
