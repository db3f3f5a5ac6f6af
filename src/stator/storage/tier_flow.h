// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"

namespace stator::storage {

/// Where blocks that go down come from: a device, or host memory that keeps them.
enum class SaveSource : uint8_t { kDevice, kHost };

/// What goes into and comes out of one tier below host memory, as stator_kv_* and kvbm_* series.
/// Thread-safe.
class TierFlow {
 public:
  /// `tier`: "disk", or BlockStore::tier().
  TierFlow(Metrics& metrics, std::string_view tier, SaveSource source);

  /// A block of `bytes` was read, checked and handed out.
  void loaded(uint64_t bytes);
  /// Reads of it took so long.
  void read_took(Duration took);
  /// A read that failed for another reason than that the block is not there.
  void not_given() { read_failures_.add(); }
  /// A block was written; it had waited for its turn, and then took so long.
  void saved(uint64_t bytes, Duration waited, Duration took);
  /// The tier has no use for it: a budget, a full queue, or an error that switched it off.
  void refused() { refused_.add(); }
  void failed();
  void set_enabled(bool enabled);
  /// A checksum was wrong, or (`io`) the tier gave no answer.
  void damaged() { integrity_.add(); }
  void io_error() { io_errors_.add(); }

 private:
  Counter loaded_;
  Counter loaded_bytes_;
  Counter saved_;
  Counter saved_bytes_;
  Counter refused_;
  Counter failed_;
  Counter integrity_;
  Counter io_errors_;
  Counter kvbm_saved_;
  std::vector<Counter> kvbm_loaded_;
  Counter read_failures_;
  Counter write_failures_;
  Gauge enabled_;
  Gauge path_;
  Histogram read_seconds_;
  Histogram queue_seconds_;
  Histogram write_seconds_;
};

/// Share of the prompts' blocks looked up lately (the last kWindow look-ups) that each tier below
/// host memory gave: stator_kv_hit_ratio{tier}, kvbm_disk_cache_hit_rate and, for all stores
/// together, kvbm_object_cache_hit_rate. Thread-safe.
class HitWindow {
 public:
  static constexpr size_t kWindow = 1000;

  /// Rows are named by `tiers`; "disk" is the disk, every other one a store.
  HitWindow(Metrics& metrics, const std::vector<std::string_view>& tiers);
  HitWindow(const HitWindow&) = delete;
  HitWindow& operator=(const HitWindow&) = delete;

  /// So many blocks of one prompt were looked up.
  void asked(size_t blocks);
  /// Tier number `row` gave so many.
  void found(size_t row, size_t blocks);

 private:
  struct Mark {
    uint64_t asked = 0;
    std::vector<uint64_t> found;  // by row
  };
  void update() STATOR_REQUIRES(mutex_);

  std::vector<Gauge> ratios_;
  std::vector<bool> is_disk_;
  Gauge kvbm_disk_;
  Gauge kvbm_object_;
  Mutex mutex_;
  Mark now_ STATOR_GUARDED_BY(mutex_);
  std::deque<Mark> marks_ STATOR_GUARDED_BY(mutex_);  // before each look-up; at most kWindow
};

}  // namespace stator::storage
