// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/detail/lease_table.h"

namespace stator::discovery::detail {

bool LeaseTable::observe(std::string_view name, WallTime modified, const Times& times) {
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    const bool old = times.wall_now - modified > ttl_;
    found = entries_.emplace(std::string(name), Entry{modified, times.now, old, scan_}).first;
  }
  Entry& entry = found->second;
  entry.scan = scan_;
  if (entry.modified != modified) {
    entry = {modified, times.now, false, scan_};
  }
  return !entry.doubtful && times.now - entry.moved_at <= ttl_;
}

void LeaseTable::forget(std::string_view name) {
  if (const auto found = entries_.find(name); found != entries_.end()) {
    entries_.erase(found);
  }
}

void LeaseTable::end_scan() {
  absl::erase_if(entries_, [this](const auto& entry) { return entry.second.scan != scan_; });
}

std::vector<LeaseTable::Expired> LeaseTable::expired(TimePoint now) const {
  std::vector<Expired> result;
  for (const auto& [name, entry] : entries_) {
    if (now - entry.moved_at > ttl_) {
      result.push_back({name, entry.modified});
    }
  }
  return result;
}

}  // namespace stator::discovery::detail
