// SPDX-License-Identifier: Apache-2.0
#include "stator/media/media_cache.h"

#include <utility>

namespace stator::media {

void MediaCache::erase(std::list<Entry>::iterator entry) {
  bytes_ -= entry->blob->bytes.size();
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

BlobPtr MediaCache::find(const std::string& key, TimePoint now) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return nullptr;
  }
  const auto entry = found->second;
  if (entry->expires <= now) {
    erase(entry);
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->blob;
}

size_t MediaCache::add(const std::string& key, BlobPtr blob, TimePoint now) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    erase(found->second);
  }
  if (blob->bytes.size() > bytes_max_) {
    return 0;
  }
  bytes_ += blob->bytes.size();
  entries_.push_front({.key = key, .blob = std::move(blob), .expires = now + ttl_});
  by_key_.emplace(key, entries_.begin());
  size_t gone = 0;
  while (bytes_ > bytes_max_) {
    erase(std::prev(entries_.end()));
    ++gone;
  }
  return gone;
}

void MediaCache::clear() {
  entries_.clear();
  by_key_.clear();
  bytes_ = 0;
}

}  // namespace stator::media
