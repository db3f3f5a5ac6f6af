// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/prefix_cache.h"

#include "stator/core/hash.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace stator::tokenizer {
namespace {

// List node, map slot with its share of empty ones, reference count, allocator headers.
constexpr size_t kOverheadBytes = 160;

}  // namespace

PrefixCache::PrefixCache(size_t bytes_max, Counters counters)
    : bytes_max_(bytes_max), counters_(counters) {}

size_t PrefixCache::bytes_of(const PrefixSegment& segment) {
  return sizeof(PrefixSegment) + kOverheadBytes + segment.text.capacity() +
         segment.ids.capacity() * sizeof(TokenId) +
         segment.sequences.capacity() * sizeof(blocks::SequenceHash);
}

PrefixCache::Found PrefixCache::find(uint64_t scope, std::string_view text,
                                     std::span<const size_t> ends) {
  Found found{.scope = scope, .path = {}, .keys = {}};
  found.keys.reserve(ends.size());
  size_t begin = 0;
  for (const size_t end : ends) {
    const uint64_t before = found.keys.empty() ? scope : found.keys.back();
    found.keys.push_back(xxh3_64(text.substr(begin, end - begin), before));
    begin = end;
  }
  {
    const MutexLock lock(mutex_);
    for (const uint64_t key : found.keys) {
      const auto known = by_key_.find(key);
      if (known == by_key_.end()) {
        break;
      }
      found.path.push_back(*known->second);
    }
  }
  begin = 0;
  uint64_t parent = scope;
  for (size_t i = 0; i < found.path.size(); ++i) {
    const PrefixSegment& segment = *found.path[i];
    if (segment.parent != parent || segment.text != text.substr(begin, ends[i] - begin)) {
      found.path.resize(i);  // another text with the same hash
      break;
    }
    parent = segment.serial;
    begin = ends[i];
  }
  (found.path.empty() ? counters_.misses : counters_.hits).add();
  return found;
}

void PrefixCache::keep(std::span<const Segment> path) {
  Order evicted;  // freed after the lock
  const MutexLock lock(mutex_);
  // From the end, so that the start of a path is always more recent than what needs it.
  for (const Segment& segment : path | std::views::reverse) {
    const auto [known, fresh] = by_key_.try_emplace(segment->key);
    if (fresh) {
      order_.push_front(segment);
      bytes_ += bytes_of(*segment);
    } else {
      order_.splice(order_.begin(), order_, known->second);
      if (order_.front() != segment) {
        // Encoded twice at the same time, or equal hashes of other texts: the newer path stays
        // whole, the older one ends here.
        bytes_ += bytes_of(*segment) - bytes_of(*order_.front());
        evicted.push_back(std::exchange(order_.front(), segment));
      }
    }
    known->second = order_.begin();
  }
  evict(evicted);
  counters_.bytes.set(static_cast<double>(bytes_));
}

void PrefixCache::evict(Order& evicted) {
  while (bytes_ > bytes_max_) {
    bytes_ -= bytes_of(*order_.back());
    by_key_.erase(order_.back()->key);
    evicted.splice(evicted.begin(), order_, std::prev(order_.end()));
    counters_.evictions.add();
  }
}

size_t PrefixCache::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace stator::tokenizer
