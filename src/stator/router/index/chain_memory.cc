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
// absl's flat map: 16 bytes at up to 7/8 full, control bytes.
constexpr size_t kPrivateNameBytes = 20;
// Of the budget, for lists of holders that grow within one event.
constexpr size_t kListsShare = 128;
// Of a row: its place in the position table and its part of the owner column.
constexpr size_t kTableBytesPerRow = 11;

}  // namespace

size_t ChainIndex::memory_bytes() const {
  const size_t row = sizeof(uint64_t) * (arena_.any_external() ? 2 : 1);
  const size_t granules = arena_.high_water() / BlockArena::kGranule;
  return arena_.high_water() * row + granules * sizeof(uint32_t) +
         size_t{chains_top_} * sizeof(Chain) + positions_.bytes() + heads_.bytes() +
         holder_lists_bytes_ + stats_.private_names * kPrivateNameBytes +
         slots_.size() * sizeof(SlotKey) + slots_.size() * sizeof(SlotEntry);
}

/// Whether a chain of `rows` rows more would not fit, whatever tables must grow for it.
bool ChainIndex::over_budget(uint32_t rows) const {
  const size_t row = sizeof(uint64_t) * (arena_.any_external() ? 2 : 1) + kTableBytesPerRow +
                     (stats_.private_names > 0 ? kPrivateNameBytes : 0);
  return memory_bytes() + rows * row + sizeof(Chain) + heads_.growth_bytes() +
             positions_.growth_bytes() + config_.bytes_max / kListsShare >
         config_.bytes_max;
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
  const ChainHolders::View holders = target.holders.view();
  for (uint32_t i = 0; i < holders.size(); ++i) {
    const ChainHolders::Hold hold = holders[i];
    if (slot_keys_[hold.slot].alive.load(std::memory_order_relaxed) == 0) {
      continue;
    }
    SlotEntry& entry = slots_[hold.slot];
    entry.blocks -= hold.to - hold.from;
    holder_blocks_ -= hold.to - hold.from;
    stats_.evicted_blocks += hold.to - hold.from;
    if (!entry.own_names.empty()) {
      const size_t before = entry.own_names.size();
      absl::erase_if(entry.own_names, [&](const auto& name) {
        const uint64_t row = name.second >> 32;
        return row >= base + hold.from && row < base + hold.to;
      });
      stats_.private_names -= before - entry.own_names.size();
    }
  }
  free_chain(id);
}

/// Goes on dropping the slots of removed workers from the chains they held.
void ChainIndex::sweep() {
  if (sweeping_slots_.empty()) {
    if (dying_slots_.empty()) {
      return;
    }
    sweeping_slots_ = std::exchange(dying_slots_, {});
    for (const Slot slot : sweeping_slots_) {
      slots_[slot].swept = true;
    }
    sweep_at_ = 1;
  }
  for (uint32_t i = 0; i < kSweepStep && sweep_at_ < chains_top_; ++i, ++sweep_at_) {
    if (chain(sweep_at_).length.load(std::memory_order_relaxed) > 0) {
      sweep_chain(sweep_at_);
    }
  }
  if (sweep_at_ >= chains_top_) {
    retire(std::exchange(sweeping_slots_, {}));
  }
}

void ChainIndex::sweep_chain(uint32_t id) {
  Chain& target = chain(id);
  const ChainHolders::View holders = target.holders.view();
  std::vector<uint32_t> left;
  bool changed = false;
  for (uint32_t i = 0; i < holders.size(); ++i) {
    if (slots_[holders[i].slot].swept) {
      if (!changed) {
        for (uint32_t before = 0; before < i; ++before) {
          left.push_back(holders.word(before));
        }
      }
      changed = true;
    } else if (changed) {
      left.push_back(holders.word(i));
    }
  }
  if (changed) {
    const Change change(target);
    change_holders(target, [&](ChainHolders& list) { return list.assign(left); });
    truncate(id, target.holders.end());
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
    if (const auto* slots = std::get_if<std::vector<Slot>>(&what)) {
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
