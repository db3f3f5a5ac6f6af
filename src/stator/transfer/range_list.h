// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/transfer/types.h"

namespace stator::transfer {

/// Two ranges of equal length, and the registration that holds the remote one.
struct Pair {
  Desc local;
  Desc remote;
  const Region* remote_region = nullptr;  ///< null where the remote side is this agent
};

/// Ranges of one owner, checked once, so that transfers only name indices. Strided runs stay runs:
/// a million ranges of a KV cache take 40 bytes.
///
///   RangeList list("decode-0", MemType::kDram);
///   if (!list.add(range, regions_of_the_owner)) { … not registered … }
///   list[7];
///
/// Filled by one thread, read by any afterwards.
class RangeList {
 public:
  /// `owner` empty: this agent.
  RangeList(std::string owner, MemType type) : owner_(std::move(owner)), type_(type) {}

  const std::string& owner() const { return owner_; }
  MemType type() const { return type_; }
  size_t size() const { return runs_.empty() ? ranges_.size() : ends_.back(); }

  /// False: no region of the owner covers it. Of a peer the region is kept; `regions` are sorted
  /// (types.h). Ranges and runs do not mix in a list.
  bool add(std::span<const Desc> ranges, std::span<const Region> regions) {
    ranges_.reserve(ranges_.size() + ranges.size());
    region_of_.reserve(owner_.empty() ? 0 : region_of_.size() + ranges.size());
    const Region* last = nullptr;  // mostly the next range is in the same one
    for (const Desc& range : ranges) {
      if (last == nullptr || !last->covers(range)) {
        last = find_covering(regions, type_, range);
        if (last == nullptr) {
          return false;
        }
        keep(*last);
      }
      ranges_.push_back(range);
      if (!owner_.empty()) {
        region_of_.push_back(static_cast<uint32_t>(regions_.size() - 1));
      }
    }
    return true;
  }
  /// The same for a run that one region covers from its first to its last byte.
  bool add_run(const StridedDesc& run, std::span<const Region> regions) {
    const auto whole = hull(run);
    const Region* const region = whole ? find_covering(regions, type_, *whole) : nullptr;
    if (region == nullptr) {
      return false;
    }
    keep(*region);
    runs_.push_back(run);
    ends_.push_back(size_before_last_run() + run.count);
    if (!owner_.empty()) {
      region_of_.push_back(static_cast<uint32_t>(regions_.size() - 1));
    }
    return true;
  }

  Desc operator[](size_t index) const {
    return runs_.empty() ? ranges_[index] : piece(run_of(index), index);
  }
  /// Of a peer's list: the registration that holds the range. Null: it is this agent's.
  const Region* region(size_t index) const {
    return owner_.empty() ? nullptr : &regions_[region_of_[runs_.empty() ? index : run_of(index)]];
  }

  /// From its first to its last byte; nothing: it is empty or wraps.
  static std::optional<Desc> hull(const StridedDesc& run) {
    uint64_t reach = 0;
    uint64_t bytes = 0;
    if (run.count == 0 || __builtin_mul_overflow(run.count - 1, run.stride, &reach) ||
        __builtin_add_overflow(reach, run.len, &bytes)) {
      return std::nullopt;
    }
    return Desc{.addr = run.addr, .len = bytes, .dev = run.dev};
  }

 private:
  void keep(const Region& region) {
    if (!owner_.empty()) {
      regions_.push_back(region);
    }
  }
  uint64_t size_before_last_run() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Runs of a list mostly have one length, so the first guess is right.
  size_t run_of(size_t index) const {
    const size_t guess = std::min<size_t>(index / runs_.front().count, runs_.size() - 1);
    if (index < ends_[guess] && index >= ends_[guess] - runs_[guess].count) {
      return guess;
    }
    return static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  Desc piece(size_t run, size_t index) const {
    const StridedDesc& of = runs_[run];
    const uint64_t at = index - (ends_[run] - of.count);
    return {.addr = of.addr + at * of.stride, .len = of.len, .dev = of.dev};
  }

  std::string owner_;
  MemType type_;
  std::vector<Desc> ranges_;
  std::vector<StridedDesc> runs_;
  std::vector<uint64_t> ends_;       // by run: the index behind its last range
  std::vector<Region> regions_;      // of a peer: those that its ranges are in
  std::vector<uint32_t> region_of_;  // of a peer, by range or run
};

/// The pairs of a transfer, or some of them, made from the two lists when they are looked at.
class Pairs {
 public:
  Pairs() = default;
  /// The first ranges of both, or those with these indices. All of it outlives this.
  Pairs(const RangeList& local, const RangeList& remote, size_t count)
      : local_(&local), remote_(&remote), count_(count) {}
  Pairs(const RangeList& local, std::span<const uint32_t> local_indices, const RangeList& remote,
        std::span<const uint32_t> remote_indices)
      : local_(&local),
        remote_(&remote),
        local_indices_(local_indices.data()),
        remote_indices_(remote_indices.data()),
        count_(local_indices.size()) {}

  size_t size() const { return count_; }
  Pair operator[](size_t index) const {
    const size_t l = local_indices_ == nullptr ? begin_ + index : local_indices_[begin_ + index];
    const size_t r = remote_indices_ == nullptr ? begin_ + index : remote_indices_[begin_ + index];
    Pair pair{.local = (*local_)[l], .remote = (*remote_)[r], .remote_region = remote_->region(r)};
    if (piece_len_ > 0) {
      pair.local.addr += piece_at_;
      pair.remote.addr += piece_at_;
      pair.local.len = pair.remote.len = piece_len_;
    }
    return pair;
  }
  /// Pairs `begin` to `end`.
  Pairs slice(size_t begin, size_t end) const {
    Pairs part = *this;
    part.begin_ = begin_ + begin;
    part.count_ = end - begin;
    return part;
  }
  /// `len` bytes of one pair, from byte `at` on.
  Pairs piece(size_t index, uint64_t at, uint64_t len) const {
    Pairs part = slice(index, index + 1);
    part.piece_at_ = at;
    part.piece_len_ = len;
    return part;
  }

 private:
  const RangeList* local_ = nullptr;
  const RangeList* remote_ = nullptr;
  const uint32_t* local_indices_ = nullptr;  // null: the ranges in their order
  const uint32_t* remote_indices_ = nullptr;
  size_t begin_ = 0;
  size_t count_ = 0;
  uint64_t piece_at_ = 0;
  uint64_t piece_len_ = 0;  // 0: whole pairs
};

}  // namespace stator::transfer
