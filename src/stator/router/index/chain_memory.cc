// SPDX-License-Identifier: Apache-2.0
// The bounds of a ChainIndex: its byte budget, the sweep after removed workers, reclamation.
#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

constexpr uint32_t kEvictionSample = 8;
constexpr int kSampleTries = 64;
// Chains looked at per event while a sweep is on: a million chains are swept in 16 k events.
constexpr uint32_t kSweepStep = 64;

}  // namespace

size_t ChainIndex::memory_bytes() const {
  const size_t row = sizeof(uint64_t) * (any_external_ ? 2 : 1);
  const size_t granules = arena_.high_water() / BlockArena::kGranule;
  const size_t names =
      stats_.private_names * 20;  // absl's flat map: 16 bytes at up to 7/8 full, control bytes
  return arena_.high_water() * row + granules * sizeof(uint32_t) +
         size_t{chains_top_} * sizeof(Chain) + positions_.bytes() + heads_.bytes() + sets_.bytes() +
         runs_bytes_ + names + size_t{slots_used_} * sizeof(SlotEntry);
}

/// Whether `rows` rows more would not fit.
bool ChainIndex::over_budget(uint32_t rows) const {
  const size_t each = sizeof(uint64_t) * (any_external_ ? 2 : 1) + 8;  // and its share of tables
  return memory_bytes() + size_t{rows} * each > config_.bytes_max;
}

/// A chain of unpublished rows; forgets old chains if the budget asks for it.
std::optional<uint32_t> ChainIndex::new_chain(uint32_t rows) {
  for (uint32_t evictions = 0;; ++evictions) {
    const bool id_free = !free_chains_.empty() || chains_top_ < chains_max_;
    const auto grow = over_budget(rows) ? BlockArena::Grow::kNo : BlockArena::Grow::kYes;
    const auto base = id_free ? arena_.allocate(rows, grow) : std::nullopt;
    if (base) {
      uint32_t id = chains_top_;
      if (free_chains_.empty()) {
        ++chains_top_;
      } else {
        id = free_chains_.back();
        free_chains_.pop_back();
      }
      Chain& fresh = chain(id);
      fresh.base.store(*base, std::memory_order_relaxed);
      fresh.capacity = static_cast<uint16_t>(BlockArena::rounded(rows));
      fresh.holders.store(uint64_t{kNoHolders} << 1, std::memory_order_relaxed);
      arena_.set_owner(*base, fresh.capacity, id);
      ++stats_.chains;
      return id;
    }
    if (evictions == kEvictionsMax || !evict_one()) {
      return std::nullopt;
    }
  }
}

/// Takes back a chain that was never published.
void ChainIndex::discard_chain(uint32_t id) {
  --stats_.chains;
  arena_.release(chain(id).base.load(std::memory_order_relaxed), chain(id).capacity);
  free_chains_.push_back(id);
}

/// Forgets the least recently used of a few random chains. False if there is none.
bool ChainIndex::evict_one() {
  const uint32_t now = tick_.load(std::memory_order_relaxed);
  const auto age = [&](uint32_t id) {
    return now - chain(id).touched.load(std::memory_order_relaxed);
  };
  uint32_t oldest = 0;
  uint32_t found = 0;
  for (int i = 0; i < kSampleTries && found < kEvictionSample && chains_top_ > 1; ++i) {
    const auto id = static_cast<uint32_t>(1 + random_.below(chains_top_ - 1));
    if (chain(id).length.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    ++found;
    oldest = oldest == 0 || age(id) > age(oldest) ? id : oldest;
  }
  if (oldest == 0) {
    return false;
  }
  evict(oldest);
  reclaim(1);
  return true;
}

void ChainIndex::evict(uint32_t id) {
  const Chain& target = chain(id);
  const uint32_t base = target.base.load(std::memory_order_relaxed);
  uint32_t start = 0;
  for (const Run& run : runs_of(target)) {
    Slot single = 0;
    for (const Slot slot : sets_.members(run.set, single)) {
      SlotEntry& entry = slots_[slot];
      if (!entry.alive.load(std::memory_order_relaxed)) {
        continue;
      }
      entry.blocks -= run.end - start;
      holder_blocks_ -= run.end - start;
      stats_.evicted_blocks += run.end - start;
      if (!entry.own_names.empty()) {
        const size_t before = entry.own_names.size();
        absl::erase_if(entry.own_names, [&](const auto& name) {
          const uint64_t row = name.second >> 32;
          return row >= base + start && row < base + run.end;
        });
        stats_.private_names -= before - entry.own_names.size();
      }
    }
    start = run.end;
  }
  free_chain(id);
}

/// Goes on dropping the slots of removed workers from the chains they were the only holder of.
void ChainIndex::sweep() {
  if (sweeping_slots_.empty()) {
    if (dying_slots_.empty()) {
      return;
    }
    sweeping_slots_ = std::exchange(dying_slots_, {});
    std::ranges::sort(sweeping_slots_);
    sweep_at_ = 1;
  }
  const auto is_dead = [this](SetId set) {
    return set < kSlotsMax && std::ranges::binary_search(sweeping_slots_, set);
  };
  for (uint32_t i = 0; i < kSweepStep && sweep_at_ < chains_top_; ++i, ++sweep_at_) {
    Chain& target = chain(sweep_at_);
    if (target.length.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    Runs runs = runs_of(target);
    bool changed = false;
    for (Run& run : runs) {
      Slot single = 0;
      if (run.set != kNoHolders && (is_dead(run.set) || sets_.members(run.set, single).empty())) {
        run.set = kNoHolders;
        changed = true;
      }
    }
    if (!changed) {
      continue;
    }
    if (std::ranges::all_of(runs, [](const Run& run) { return run.set == kNoHolders; })) {
      free_chain(sweep_at_);
    } else {
      set_runs(sweep_at_, std::move(runs));
    }
  }
  if (sweep_at_ >= chains_top_) {
    retire(std::exchange(sweeping_slots_, {}));
  }
}

void ChainIndex::retire(decltype(Retired::what) what) {
  retired_.push_back({epochs_.advance(), std::move(what)});
}

/// Frees what no reader can see any more, if `at_least` things wait for it.
void ChainIndex::reclaim(size_t at_least) {
  if (retired_.size() < at_least) {
    return;
  }
  const uint64_t oldest = epochs_.oldest_reader();
  while (!retired_.empty() && retired_.front().epoch < oldest) {
    auto& what = retired_.front().what;
    if (auto* set = std::get_if<HolderSets::Retired>(&what)) {
      sets_.recycle(std::move(*set));
    } else if (const auto* slots = std::get_if<std::vector<Slot>>(&what)) {
      free_slots_.insert(free_slots_.end(), slots->begin(), slots->end());
    } else if (const auto* id = std::get_if<uint32_t>(&what)) {
      Chain& gone = chain(*id);
      arena_.release(gone.base.load(std::memory_order_relaxed), gone.capacity);
      free_chains_.push_back(*id);
    }
    retired_.pop_front();
  }
}

}  // namespace stator::router
