// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/prefix_cache.h"

#include <algorithm>
#include <ranges>

#include "stator/core/assert.h"

namespace stator::engine {
namespace {

/// Leading blocks that are equal. A hash covers everything before it, so that once two differ all
/// later ones do.
uint32_t common_length(PrefixCache::Chain a, PrefixCache::Chain b) {
  const size_t both = std::min(a.size(), b.size());
  if (a[both - 1] == b[both - 1]) {
    return static_cast<uint32_t>(both);
  }
  const auto parted = std::ranges::partition_point(std::views::iota(size_t{0}, both),
                                                   [&](size_t i) { return a[i] == b[i]; });
  return static_cast<uint32_t>(*parted);
}

}  // namespace

PrefixCache::Match PrefixCache::match(Chain chain) const {
  Match match;
  while (!chain.empty()) {
    const auto found = by_first_.find(chain.front());
    if (found == by_first_.end()) {
      break;
    }
    const Record& record = runs_[found->second];
    const uint32_t common = common_length(record.hashes, chain);
    match.blocks += common;
    match.idle_blocks += record.holders == 0 ? common : 0;
    if (common < record.hashes.size()) {
      break;
    }
    chain = chain.subspan(common);
  }
  return match;
}

PrefixCache::Run PrefixCache::make(Run parent, Chain hashes) {
  Run run = 0;
  if (free_runs_.empty()) {
    run = static_cast<Run>(runs_.size());
    runs_.emplace_back();
  } else {
    run = free_runs_.back();
    free_runs_.pop_back();
  }
  Record& record = runs_[run];
  record.hashes.assign(hashes.begin(), hashes.end());
  record.parent = parent;
  record.holders = 0;
  record.children = 0;
  if (parent != kNone) {
    ++runs_[parent].children;
  }
  by_first_[hashes.front()] = run;
  return run;
}

PrefixCache::Run PrefixCache::split(Run run, uint32_t length) {
  const std::vector<blocks::SequenceHash> hashes = std::move(runs_[run].hashes);
  const auto cut = hashes.begin() + length;
  const Run upper = make(runs_[run].parent, Chain(hashes.begin(), cut));
  Record& lower = runs_[run];
  if (lower.parent != kNone) {
    --runs_[lower.parent].children;  // the upper part takes its place
  }
  lower.hashes.assign(cut, hashes.end());
  lower.parent = upper;
  by_first_[lower.hashes.front()] = run;
  runs_[upper].holders = lower.holders;
  runs_[upper].children = 1;
  return upper;
}

void PrefixCache::hold(Run run) {
  Record& record = runs_[run];
  if (record.holders++ == 0) {
    unlink(run);
    idle_ -= static_cast<uint32_t>(record.hashes.size());
  }
}

PrefixCache::Run PrefixCache::acquire(Chain chain, uint32_t blocks) {
  chain = chain.first(blocks);
  Run leaf = kNone;
  while (!chain.empty()) {
    const auto found = by_first_.find(chain.front());
    STATOR_ASSERT(found != by_first_.end(), "acquired blocks are resident");
    Run run = found->second;
    const uint32_t common = common_length(runs_[run].hashes, chain);
    if (common < runs_[run].hashes.size()) {
      const bool idle = runs_[run].holders == 0;
      run = split(run, common);
      if (idle) {
        link_newest(run);  // hold() takes it out again; the lower part keeps its place
      }
    }
    hold(run);
    leaf = run;
    chain = chain.subspan(common);
  }
  return leaf;
}

PrefixCache::Extended PrefixCache::extend(Run leaf, Chain chain, uint32_t from, Removed& removed) {
  chain = chain.subspan(from);
  // Another request may have computed the same content in the meantime: one copy stays.
  const uint32_t shared = match(chain).blocks;
  if (shared > 0) {
    leaf = acquire(chain, shared);
    chain = chain.subspan(shared);
  }
  if (chain.empty()) {
    return {leaf, shared};
  }
  make_room(static_cast<uint32_t>(chain.size()), removed);
  resident_ += static_cast<uint32_t>(chain.size());
  if (leaf != kNone && runs_[leaf].holders == 1 && runs_[leaf].children == 0) {
    auto& hashes = runs_[leaf].hashes;
    hashes.insert(hashes.end(), chain.begin(), chain.end());
    return {leaf, shared};
  }
  const Run run = make(leaf, chain);
  runs_[run].holders = 1;
  return {run, shared};
}

void PrefixCache::release(Run leaf) {
  for (Run run = leaf; run != kNone; run = runs_[run].parent) {
    Record& record = runs_[run];
    STATOR_ASSERT(record.holders > 0, "C3: released by its holders only");
    if (--record.holders == 0) {
      idle_ += static_cast<uint32_t>(record.hashes.size());
      link_newest(run);
    }
  }
}

void PrefixCache::take_nameless(uint32_t count, Removed& removed) {
  make_room(count, removed);
  nameless_ += count;
}

void PrefixCache::make_room(uint32_t count, Removed& removed) {
  if (count > free()) {
    evict(count - free(), removed);
  }
}

void PrefixCache::evict(uint32_t count, Removed& removed) {
  STATOR_ASSERT(count <= idle_, "C1: only idle blocks are evicted");
  idle_ -= count;
  resident_ -= count;
  while (count > 0) {
    const Run run = oldest_;
    STATOR_ASSERT(runs_[run].children == 0, "C2: children leave before parents");
    auto& hashes = runs_[run].hashes;
    const auto gone = std::min(count, static_cast<uint32_t>(hashes.size()));
    removed.insert(removed.end(), hashes.rbegin(), hashes.rbegin() + gone);
    count -= gone;
    if (gone < hashes.size()) {
      hashes.resize(hashes.size() - gone);
      continue;
    }
    by_first_.erase(hashes.front());
    hashes.clear();
    forget(run);
  }
}

void PrefixCache::forget(Run run) {
  unlink(run);
  if (runs_[run].parent != kNone) {
    --runs_[runs_[run].parent].children;
  }
  free_runs_.push_back(run);
}

void PrefixCache::link_newest(Run run) {
  Record& record = runs_[run];
  record.older = newest_;
  record.newer = kNone;
  (newest_ == kNone ? oldest_ : runs_[newest_].newer) = run;
  newest_ = run;
}

void PrefixCache::unlink(Run run) {
  const Record& record = runs_[run];
  (record.older == kNone ? oldest_ : runs_[record.older].newer) = record.newer;
  (record.newer == kNone ? newest_ : runs_[record.newer].older) = record.older;
}

}  // namespace stator::engine
