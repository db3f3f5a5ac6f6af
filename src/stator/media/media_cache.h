// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/media/blob.h"

namespace stator::media {

/// What was fetched from which URL, for a while. Pure, one thread.
///
/// K1  The blobs of a cache have at most `bytes_max` bytes; the least recently used goes first.
/// K2  Nothing older than `ttl` is found.
class MediaCache {
 public:
  MediaCache(uint64_t bytes_max, Duration ttl) : bytes_max_(bytes_max), ttl_(ttl) {}

  /// Null: not there, or too old.
  BlobPtr find(const std::string& key, TimePoint now);
  /// Returns how many others had to go.
  size_t add(const std::string& key, BlobPtr blob, TimePoint now);
  void clear();
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    BlobPtr blob;
    TimePoint expires;
  };
  void erase(std::list<Entry>::iterator entry);

  const uint64_t bytes_max_;
  const Duration ttl_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // the most recently used first
  FlatMap<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace stator::media
