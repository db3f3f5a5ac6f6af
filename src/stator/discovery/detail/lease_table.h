// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"

namespace stator::discovery::detail {

/// Decides which record files are alive from their modification times. Pure: time is passed in.
///
/// L1  A file whose time moved within the TTL of our monotonic clock is live.
/// L2  A file that was older than the TTL (by wall clock) when first seen is not live until it
/// moves. L3  A file whose time has not moved for the TTL is expired: not live, may be deleted.
class LeaseTable {
 public:
  explicit LeaseTable(Duration ttl) : ttl_(ttl) {}

  struct Times {
    TimePoint now;
    WallTime wall_now;
  };
  /// A file as a scan found it. True if it is live.
  bool observe(std::string_view name, WallTime modified, const Times& times);
  /// A file that is gone.
  void forget(std::string_view name);
  /// Files that the scan begun at the last `begin_scan` did not observe are forgotten.
  void begin_scan() { ++scan_; }
  void end_scan();
  /// Expired files and the time they had, so that a deleter can check that it still is so.
  struct Expired {
    std::string name;
    WallTime modified;
  };
  std::vector<Expired> expired(TimePoint now) const;

 private:
  struct Entry {
    WallTime modified;
    TimePoint moved_at;  // when we saw it move, or first saw it
    bool doubtful = false;
    uint64_t scan = 0;
  };
  const Duration ttl_;
  uint64_t scan_ = 0;
  FlatMap<std::string, Entry> entries_;
};

}  // namespace stator::discovery::detail
