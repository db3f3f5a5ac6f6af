// SPDX-License-Identifier: Apache-2.0
#include "stator/services/replay_cache.h"

namespace stator::services {

void ReplayCache::drop(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  order_.erase(entry);
}

void ReplayCache::put(std::string_view id, SelectionRecord record, TimePoint now) {
  erase(id);
  const uint64_t bytes = record.bytes() + 2 * id.size();
  if (bytes > config_.bytes_max || config_.entries_max == 0) {
    return;
  }
  while (!order_.empty() &&
         (order_.size() >= config_.entries_max || bytes_ + bytes > config_.bytes_max ||
          now - order_.front().since >= config_.ttl)) {
    drop(order_.begin());
  }
  order_.push_back({std::string(id), std::move(record), now, bytes});
  bytes_ += bytes;
  by_id_.emplace(std::string(id), std::prev(order_.end()));
}

const SelectionRecord* ReplayCache::find(std::string_view id, TimePoint now) {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) {
    return nullptr;
  }
  if (now - known->second->since >= config_.ttl) {
    drop(known->second);
    return nullptr;
  }
  return &known->second->record;
}

void ReplayCache::erase(std::string_view id) {
  if (const auto known = by_id_.find(id); known != by_id_.end()) {
    drop(known->second);
  }
}

}  // namespace stator::services
