// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/chain_holders.h"

#include <algorithm>

namespace stator::router {
namespace {

// Lists grow by this many entries at least, and by an eighth.
constexpr uint32_t kStep = 6;  // with the two words of the header: 32 bytes
constexpr uint32_t kGrowth = 8;

}  // namespace

uint32_t ChainHolders::View::lower_bound(uint32_t word) const {
  uint32_t low = 0;
  for (uint32_t left = count_; left > 0;) {
    const uint32_t half = left / 2;
    const bool less = this->word(low + half) < word;
    low += less ? half + 1 : 0;
    left = less ? left - half - 1 : half;
  }
  return low;
}

ChainHolders::View ChainHolders::view() const {
  const std::atomic<uint32_t>* block = block_.load(std::memory_order_acquire);
  if (block == nullptr) {
    return {inline_.data(), std::min(count_.load(std::memory_order_relaxed), kInline)};
  }
  return {block + kHeader, block[1].load(std::memory_order_relaxed)};
}

std::atomic<uint32_t>* ChainHolders::words() {
  std::atomic<uint32_t>* block = block_.load(std::memory_order_relaxed);
  return block == nullptr ? inline_.data() : block + kHeader;
}

void ChainHolders::set_count(uint32_t count) {
  std::atomic<uint32_t>* block = block_.load(std::memory_order_relaxed);
  (block == nullptr ? count_ : block[1]).store(count, std::memory_order_relaxed);
}

size_t ChainHolders::bytes_of(const std::atomic<uint32_t>* block) {
  // And what the allocator keeps beside it.
  return block == nullptr
             ? 0
             : (block[0].load(std::memory_order_relaxed) + kHeader) * sizeof(uint32_t) + 8;
}

/// Makes room for `count` entries, or gives room back; what it replaces. Entries move along.
ChainHolders::Block ChainHolders::resize(uint32_t count) {
  std::atomic<uint32_t>* old = block_.load(std::memory_order_relaxed);
  const uint32_t capacity = old == nullptr ? kInline : old[0].load(std::memory_order_relaxed);
  const bool shrink = old != nullptr && uint64_t{count} * 4 <= capacity;
  if (count <= capacity && !shrink) {
    return nullptr;
  }
  const View before = view();
  const uint32_t kept = std::min(before.size(), count);
  if (count <= kInline) {
    for (uint32_t i = 0; i < kept; ++i) {
      inline_[i].store(before.word(i), std::memory_order_relaxed);
    }
    count_.store(kept, std::memory_order_relaxed);
    block_.store(nullptr, std::memory_order_release);
    return Block(old);
  }
  const uint32_t wanted = count + count / kGrowth + kHeader;
  const uint32_t room = (wanted + kStep + kHeader - 1) / (kStep + kHeader) * (kStep + kHeader);
  auto fresh = std::make_unique<std::atomic<uint32_t>[]>(room);
  fresh[0].store(room - kHeader, std::memory_order_relaxed);
  fresh[1].store(kept, std::memory_order_relaxed);
  for (uint32_t i = 0; i < kept; ++i) {
    fresh[kHeader + i].store(before.word(i), std::memory_order_relaxed);
  }
  block_.store(fresh.release(), std::memory_order_release);
  return Block(old);
}

ChainHolders::Splice ChainHolders::plan_add(Hold hold) const {
  const View all = view();
  const uint32_t low = all.lower_bound(hold.slot << 16);
  Splice splice{.at = low};
  Hold merged = hold;
  uint32_t covered = 0;
  // The slot's stretches that touch the new one become one with it.
  for (uint32_t i = low; i < all.size(); ++i) {
    const Hold each = all[i];
    if (each.slot != hold.slot || each.from > hold.to) {
      break;
    }
    if (each.to < hold.from) {
      ++splice.at;
      continue;
    }
    ++splice.gone;
    covered += each.to - each.from;
    merged.from = std::min(merged.from, each.from);
    merged.to = std::max(merged.to, each.to);
  }
  splice.fresh = 1;
  splice.words[0] = merged.word();
  splice.rows = merged.to - merged.from - covered;
  return splice;
}

ChainHolders::Splice ChainHolders::plan_drop(Hold hold) const {
  const View all = view();
  const uint32_t low = all.lower_bound(hold.slot << 16);
  Splice splice{.at = low};
  for (uint32_t i = low; i < all.size(); ++i) {
    const Hold each = all[i];
    if (each.slot != hold.slot || each.from >= hold.to) {
      break;
    }
    if (each.to <= hold.from) {
      ++splice.at;
      continue;
    }
    ++splice.gone;
    splice.rows += std::min(each.to, hold.to) - std::max(each.from, hold.from);
    if (each.from < hold.from) {
      splice.words[splice.fresh++] = Hold{each.slot, each.from, hold.from}.word();
    }
    if (each.to > hold.to) {
      splice.words[splice.fresh++] = Hold{each.slot, hold.to, each.to}.word();
    }
  }
  return splice;
}

ChainHolders::Block ChainHolders::apply(const Splice& splice) {
  const uint32_t before = view().size();
  const uint32_t after = before - splice.gone + splice.fresh;
  Block old = after > before ? resize(after) : nullptr;
  std::atomic<uint32_t>* all = words();
  const auto move = [all](uint32_t to, uint32_t from) {
    all[to].store(all[from].load(std::memory_order_relaxed), std::memory_order_relaxed);
  };
  for (uint32_t i = splice.at + splice.gone; after < before && i < before; ++i) {
    move(i - splice.gone + splice.fresh, i);
  }
  for (uint32_t i = before; after > before && i-- > splice.at + splice.gone;) {
    move(i - splice.gone + splice.fresh, i);
  }
  for (uint32_t i = 0; i < splice.fresh; ++i) {
    all[splice.at + i].store(splice.words[i], std::memory_order_relaxed);
  }
  set_count(after);
  return after < before ? resize(after) : std::move(old);
}

ChainHolders::Block ChainHolders::assign(std::span<const uint32_t> wanted) {
  Block old = resize(static_cast<uint32_t>(wanted.size()));
  std::atomic<uint32_t>* all = words();
  for (size_t i = 0; i < wanted.size(); ++i) {
    all[i].store(wanted[i], std::memory_order_relaxed);
  }
  set_count(static_cast<uint32_t>(wanted.size()));
  return old;
}

bool ChainHolders::holds(Slot slot, uint32_t row) const {
  const View all = view();
  for (uint32_t i = all.lower_bound(slot << 16); i < all.size(); ++i) {
    const Hold each = all[i];
    if (each.slot != slot || each.from > row) {
      return false;
    }
    if (row < each.to) {
      return true;
    }
  }
  return false;
}

uint32_t ChainHolders::end() const {
  const View all = view();
  uint32_t end = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    end = std::max(end, (all.word(i) & 0xFF) + 1);
  }
  return end;
}

}  // namespace stator::router
