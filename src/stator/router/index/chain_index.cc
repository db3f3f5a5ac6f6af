// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/chain_index.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

// A position costs at least a hash and its share of the tables, so the budget bounds the rows.
constexpr uint64_t kBytesPerRowMin = 12;
// One chain per granule at most.
constexpr uint64_t kRowsPerChainMin = BlockArena::kGranule;
// Uses are dated in ticks of this many events: fine enough for eviction, rarely written by readers.
constexpr uint32_t kEventsPerTick = 256;
// How many unlinked things may wait before an event looks whether readers have left.
constexpr size_t kReclaimAt = 64;
// How many table slots ahead are fetched: about as many misses as a core keeps in flight.
constexpr uint32_t kPrefetch = 16;
// Blocks of one event whose buffers are kept for the next (0.5 MB).
constexpr size_t kScratchMax = 32 * 1024;

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// How many of `names` are the rows above `row`, upwards; at most `most`.
uint32_t count_above(const uint64_t* row, uint32_t most,
                     std::span<const blocks::ExternalHash> names) {
  const auto both = static_cast<uint32_t>(std::min<size_t>(most, names.size()));
  uint32_t count = 0;
  while (count < both && *--row == names[count].value()) {
    ++count;
  }
  return count;
}

}  // namespace

Result<std::unique_ptr<ChainIndex>> ChainIndex::create(const Config& config) {
  const uint64_t rows =
      std::clamp<uint64_t>(config.bytes_max / kBytesPerRowMin, 1024, BlockArena::kRowsMax);
  STATOR_TRY(BlockArena arena, BlockArena::create(rows));
  STATOR_TRY(memory::Arena chains,
             memory::Arena::create({.bytes = (rows / kRowsPerChainMin + 2) * sizeof(Chain),
                                    .huge_pages = memory::HugePages::kAdviseWhenLarge}));
  STATOR_TRY(memory::Arena keys, memory::Arena::create({.bytes = kSlotsMax * sizeof(SlotKey)}));
  auto index = std::unique_ptr<ChainIndex>(
      new ChainIndex(config, std::move(arena), std::move(chains), std::move(keys)));
  index->chains_max_ = static_cast<uint32_t>(rows / kRowsPerChainMin + 2);
  return index;
}

ChainIndex::ChainIndex(const Config& config, BlockArena arena, memory::Arena chain_memory,
                       memory::Arena key_memory)
    : config_(config),
      arena_(std::move(arena)),
      chain_memory_(std::move(chain_memory)),
      key_memory_(std::move(key_memory)),
      // Zeroed pages are empty chains: atomics of integers have no other representation.
      chains_(reinterpret_cast<Chain*>(chain_memory_.bytes().data())),
      slot_keys_(reinterpret_cast<SlotKey*>(key_memory_.bytes().data())),
      number_(next_number()),
      positions_(arena_, config.bytes_max / kBytesPerRowMin),
      random_(config.seed) {}

ChainIndex::~ChainIndex() {
  for (uint32_t id = 1; id < chains_top_; ++id) {
    const ChainHolders::Block old = chains_[id].holders.assign({});
  }
}

/// What is due at every change.
void ChainIndex::begin() {
  if (++applied_ % kEventsPerTick == 0) {
    tick_.fetch_add(1, std::memory_order_relaxed);
  }
  sweep();
  reclaim(kReclaimAt);
}

Applied ChainIndex::apply(WorkerKey worker, const kv::KvEvent& event) {
  begin();
  if (std::holds_alternative<kv::AllCleared>(event.data)) {
    remove_worker(worker);
    return Applied::kOk;
  }
  if (event.tier != kv::StorageTier::kDevice) {
    return Applied::kIgnoredTier;
  }
  const std::optional<Slot> slot = slot_of(worker);
  if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
    if (!slot) {
      stats_.refused_blocks += stored->blocks.size();
      return Applied::kOverBudget;
    }
    return store(*slot, *stored);
  }
  return slot ? remove(*slot, std::get<kv::BlocksRemoved>(event.data)) : Applied::kUnknownBlock;
}

// ── Workers ──

std::optional<Slot> ChainIndex::slot_of(WorkerKey worker) {
  if (const auto known = slot_by_worker_.find(worker); known != slot_by_worker_.end()) {
    return known->second;
  }
  Slot slot = 0;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else if (slots_.size() < kSlotsMax) {
    slot = static_cast<Slot>(slots_.size());
    slots_.emplace_back();
  } else {
    return std::nullopt;
  }
  SlotKey& key = slot_keys_[slot];
  key.worker.store(worker.worker.value(), std::memory_order_relaxed);
  key.dp_rank.store(worker.dp_rank, std::memory_order_relaxed);
  key.alive.store(1, std::memory_order_release);
  slots_[slot] = {};
  slot_by_worker_.emplace(worker, slot);
  return slot;
}

void ChainIndex::remove_worker(WorkerKey worker) {
  const auto known = slot_by_worker_.find(worker);
  if (known == slot_by_worker_.end()) {
    return;
  }
  const Slot slot = known->second;
  slot_by_worker_.erase(known);
  SlotEntry& entry = slots_[slot];
  // From here on readers skip it; chains lose it by and by (sweep).
  slot_keys_[slot].alive.store(0, std::memory_order_release);
  removals_.fetch_add(1, std::memory_order_release);  // after it: who sees this sees that
  holder_blocks_ -= std::exchange(entry.blocks, 0);
  stats_.private_names -= entry.own_names.size();
  FlatMap<uint64_t, uint64_t>().swap(entry.own_names);
  dying_slots_.push_back(slot);
}

// ── Stored ──

Applied ChainIndex::store(Slot slot, const kv::BlocksStored& run) {
  std::optional<uint32_t> parent;
  if (run.parent) {
    parent = resolve(slot, run.parent->value());
    if (!parent || !holds(*parent, slot)) {
      return Applied::kUnknownParent;
    }
  }
  prepare(slot, run, parent ? arena_.sequence(*parent) : 0);
  drop_renamed(storing_);
  if (parent) {
    if (!holds(*parent, slot)) {
      return Applied::kUnknownParent;  // a block of the run has its parent's name
    }
    storing_.parent = place_of(*parent);
  }
  return place_all();
}

/// Stores what has been prepared.
Applied ChainIndex::place_all() {
  Storing& storing = storing_;
  const size_t wanted = storing.blocks.size();
  for (size_t at = 0; at < storing.sequences.size();) {
    if (!place_known(storing, at) && !place_new(storing, at)) {
      break;
    }
  }
  const size_t placed = storing.sequences.size();
  storing.blocks = {};
  stats_.refused_blocks += wanted - placed;
  // New chains made room for themselves; names and holders of known ones have not.
  for (uint32_t i = 0; i < kEvictionsMax && over_budget(0) && evict_one(); ++i) {
  }
  return placed == wanted ? Applied::kOk : Applied::kOverBudget;
}

Applied ChainIndex::store_prefix(WorkerKey worker,
                                 std::span<const blocks::SequenceHash> sequences) {
  begin();
  const std::optional<Slot> slot = slot_of(worker);
  if (!slot) {
    stats_.refused_blocks += sequences.size();
    return Applied::kOverBudget;
  }
  if (prefix_.capacity() > kScratchMax) {
    prefix_ = {};
    storing_ = {};
  }
  prefix_.clear();
  storing_.sequences.clear();
  storing_.names.clear();
  for (const blocks::SequenceHash sequence : sequences) {
    prefix_.push_back({.external = blocks::ExternalHash(sequence.value()), .local = {}});
    storing_.sequences.push_back(sequence.value());
  }
  storing_.slot = *slot;
  storing_.by_content = false;  // nobody looked
  storing_.blocks = prefix_;
  storing_.parent.reset();
  hash_names(storing_);
  drop_renamed(storing_);
  return place_all();
}

std::optional<blocks::SequenceHash> ChainIndex::find_held(WorkerKey worker,
                                                          blocks::ExternalHash name) const {
  const auto slot = slot_by_worker_.find(worker);
  if (slot == slot_by_worker_.end()) {
    return std::nullopt;
  }
  const auto row = resolve(slot->second, name.value());
  return row && holds(*row, slot->second)
             ? std::optional(blocks::SequenceHash(arena_.sequence(*row)))
             : std::nullopt;
}

/// Hashes what is about to be stored below the block with sequence hash `above`, if there is one.
void ChainIndex::prepare(Slot slot, const kv::BlocksStored& run, uint64_t above) {
  if (storing_.sequences.capacity() > kScratchMax) {
    storing_ = {};
  }
  storing_.slot = slot;
  storing_.blocks = run.blocks;
  storing_.parent.reset();
  storing_.sequences.resize(run.blocks.size());
  storing_.names.clear();
  const auto link = [&](size_t i, uint64_t parent) {
    const blocks::LocalHash local = run.blocks[i].local;
    return storing_.sequences[i] =
               (i == 0 && !run.parent ? blocks::chain(local)
                                      : blocks::chain(blocks::SequenceHash(parent), local))
                   .value();
  };
  size_t i = 0;
  bool by_content = true;
  for (; by_content && i < run.blocks.size(); ++i) {
    // While names are contents, a block's parent is known before the parent's hash is computed: the
    // links do not wait for each other.
    above = link(i, i == 0 ? above : run.blocks[i - 1].external.value());
    by_content = run.blocks[i].external.value() == above && !PositionTable::is_reserved(above);
  }
  for (; i < run.blocks.size(); ++i) {
    above = link(i, above);
  }
  storing_.by_content = by_content;
  if (!names_are_content(storing_)) {
    hash_names(storing_);
  }
}

/// Once per event, and only if somebody looks.
void ChainIndex::hash_names(Storing& storing) const {
  for (size_t i = storing.names.size(); i < storing.blocks.size(); ++i) {
    storing.names.push_back(positions_.hash_of(storing.blocks[i].external.value()));
  }
}

/// Blocks that the index has already get one more holder.
bool ChainIndex::place_known(Storing& storing, size_t& at) {
  const auto found = find_next(storing.parent, storing.sequences[at]);
  if (!found) {
    return false;
  }
  const auto left = static_cast<uint32_t>(storing.sequences.size() - at);
  const Chain& target = chain(found->chain);
  const uint32_t matched = match_length(target, found->offset, &storing.sequences[at], left);
  const uint32_t row = target.base.load(std::memory_order_relaxed) + found->offset;
  // Where names are contents, the row has the right one already.
  uint32_t count = names_are_content(storing) ? matched : 0;
  while (count < matched && bind(storing, at + count, row + count, row)) {
    ++count;
  }
  if (count < matched) {
    storing.sequences.resize(at + count);
  }
  if (count == 0) {
    return true;  // cut: nothing is left to place
  }
  const uint32_t added =
      add_holder(found->chain, {storing.slot, found->offset, found->offset + count});
  slots_[storing.slot].blocks += added;
  holder_blocks_ += added;
  touch(target);
  storing.parent = Place{found->chain, found->offset + count - 1};
  at += count;
  return true;
}

/// Whether all its names, and all shared ones, are the sequence hashes of what they stand for.
bool ChainIndex::names_are_content(const Storing& storing) const {
  return storing.by_content && !arena_.any_external() && !slots_[storing.slot].has_own_names;
}

/// Fetches the table entries of the next names as a group, so that their misses overlap.
void ChainIndex::prefetch_names(const Storing& storing, size_t from) const {
  for (size_t i = from; i < std::min(from + kPrefetch, storing.names.size()); ++i) {
    positions_.prefetch(storing.names[i]);
  }
}

/// Binds rows to names; a name given twice in one run cuts the run there. Returns the rows bound.
uint32_t ChainIndex::bind_run(Storing& storing, size_t at, uint32_t row, uint32_t count) {
  const auto sequences = std::span<const uint64_t>(storing.sequences).subspan(at, count);
  for (uint32_t i = 0; i < count; ++i) {
    arena_.set_sequence(row + i, sequences[i]);
  }
  uint32_t bound = names_are_content(storing) ? positions_.insert_run(sequences, row) : 0;
  if (bound < count) {
    hash_names(storing);
    prefetch_names(storing, at + bound);
  }
  for (uint32_t ahead = 0; bound < count; ++bound, ++ahead) {
    if (ahead % kPrefetch == 0) {
      prefetch_names(storing, at + bound + kPrefetch);
    }
    if (!bind_new(storing, at + bound, row + bound, row)) {
      storing.sequences.resize(at + bound);
      break;
    }
  }
  return bound;
}

/// How many blocks from `at` on (which is new) can become one chain: up to the next one that heads
/// a chain already, left behind when the blocks before it were removed.
uint32_t ChainIndex::count_new(const Storing& storing, size_t at) const {
  const auto all =
      static_cast<uint32_t>(std::min<size_t>(storing.sequences.size() - at, BlockArena::kRangeMax));
  for (uint32_t i = 1; i < all; ++i) {
    const uint64_t sequence = storing.sequences[at + i];
    if (heads_.may_contain(sequence) && find_head(sequence)) {
      return i;
    }
  }
  return all;
}

bool ChainIndex::place_new(Storing& storing, size_t& at) {
  if (append_to_parent(storing, at)) {
    return true;
  }
  const uint32_t wanted = count_new(storing, at);
  // The parent must survive the search for room, which may forget other chains.
  const std::optional<uint32_t> id = new_chain(wanted);
  if (!id) {
    storing.sequences.resize(at);
    return false;
  }
  Chain& fresh = chain(*id);
  const uint64_t head = storing.sequences[at];
  const uint32_t count = bind_run(storing, at, fresh.base.load(std::memory_order_relaxed), wanted);
  if (count == 0) {
    discard_chain(*id);
    return false;
  }
  {
    const Change change(fresh);
    const std::array holders = {ChainHolders::Hold{storing.slot, 0, count}.word()};
    fresh.head.store(head, std::memory_order_relaxed);
    fresh.tail.store(storing.sequences[at + count - 1], std::memory_order_relaxed);
    change_holders(fresh, [&](ChainHolders& list) { return list.assign(holders); });
    fresh.next.store(0, std::memory_order_relaxed);
    fresh.fork.store(0, std::memory_order_relaxed);
    fresh.touched.store(tick_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    fresh.length.store(static_cast<uint16_t>(count), std::memory_order_release);
  }
  const auto grow = memory_bytes() + heads_.growth_bytes() > config_.bytes_max
                        ? HeadTable::Grow::kIfMust
                        : HeadTable::Grow::kYes;
  if (auto old = heads_.insert(head, *id, grow)) {
    retire(std::move(old));
  }
  if (storing.parent) {
    Chain& above = chain(storing.parent->chain);
    const uint32_t behind = storing.parent->offset + 1;
    if (behind == above.length.load(std::memory_order_relaxed)) {
      above.next.store(*id, std::memory_order_release);
    } else {
      above.fork.store(static_cast<uint16_t>(behind), std::memory_order_relaxed);
    }
  }
  slots_[storing.slot].blocks += count;
  holder_blocks_ += count;
  storing.parent = Place{*id, count - 1};
  at += count;
  return true;
}

/// A sequence that grows block by block stays one chain, as long as there is room behind it.
bool ChainIndex::append_to_parent(Storing& storing, size_t& at) {
  if (!storing.parent) {
    return false;
  }
  Chain& above = chain(storing.parent->chain);
  const uint32_t length = above.length.load(std::memory_order_relaxed);
  if (storing.parent->offset + 1 != length) {
    return false;
  }
  const uint32_t base = above.base.load(std::memory_order_relaxed);
  const uint32_t wanted = std::min(count_new(storing, at), BlockArena::kRangeMax - length);
  const uint32_t needed = BlockArena::rounded(length + wanted);
  if (wanted == 0 || (needed > above.capacity &&
                      (over_budget(wanted) || !arena_.extend(base, above.capacity, needed)))) {
    return false;
  }
  if (needed > above.capacity) {
    arena_.set_owner(base + above.capacity, needed - above.capacity, storing.parent->chain);
    above.capacity = static_cast<uint16_t>(needed);
  }
  const uint32_t count = bind_run(storing, at, base + length, wanted);
  if (count == 0) {
    return true;  // the run was cut: there is nothing left to place
  }
  {
    const Change change(above);
    add_holder(storing.parent->chain, {storing.slot, length, length + count});
    above.tail.store(storing.sequences[at + count - 1], std::memory_order_relaxed);
    above.length.store(static_cast<uint16_t>(length + count), std::memory_order_release);
  }
  touch(above);
  slots_[storing.slot].blocks += count;
  holder_blocks_ += count;
  storing.parent->offset = length + count - 1;
  at += count;
  return true;
}

// ── Names: external ids ──

std::optional<uint32_t> ChainIndex::find_shared(uint64_t name, uint64_t hash) const {
  return PositionTable::is_reserved(name) ? std::nullopt : positions_.find(name, hash);
}

/// The row that the worker calls by this name, if any. Of a worker with shared names it may be one
/// that only others hold.
std::optional<uint32_t> ChainIndex::resolve(Slot slot, uint64_t name) const {
  const SlotEntry& entry = slots_[slot];
  if (!entry.has_own_names) {
    return find_shared(name, positions_.hash_of(name));
  }
  const auto found = entry.own_names.find(name);
  if (found == entry.own_names.end()) {
    return std::nullopt;
  }
  const auto row = static_cast<uint32_t>(found->second >> 32);
  const bool still_it =
      static_cast<uint32_t>(arena_.sequence(row)) == static_cast<uint32_t>(found->second);
  return still_it ? std::optional(row) : std::nullopt;
}

void ChainIndex::drop_own_name(Slot slot, uint64_t name) {
  FlatMap<uint64_t, uint64_t>& names = slots_[slot].own_names;
  stats_.private_names -= names.empty() ? 0 : names.erase(name);
}

void ChainIndex::bind_own_name(Slot slot, uint64_t name, uint32_t row) {
  const uint64_t value = uint64_t{row} << 32 | static_cast<uint32_t>(arena_.sequence(row));
  const auto [entry, fresh] = slots_[slot].own_names.insert_or_assign(name, value);
  stats_.private_names += fresh ? 1 : 0;
}

/// The worker's names disagree with those of others: from here on it has all its names for itself.
/// Looks at every chain once.
void ChainIndex::fork_names(Slot slot) {
  slots_[slot].has_own_names = true;
  ++stats_.forked_workers;
  for (uint32_t id = 1; id < chains_top_; ++id) {
    const Chain& target = chain(id);
    const uint32_t base = target.base.load(std::memory_order_relaxed);
    const ChainHolders::View holders = target.holders.view();
    for (uint32_t i = holders.lower_bound(slot << 16); i < holders.size(); ++i) {
      const ChainHolders::Hold hold = holders[i];
      for (uint32_t offset = hold.from; hold.slot == slot && offset < hold.to; ++offset) {
        bind_own_name(slot, PositionTable::name_of(arena_, base + offset), base + offset);
      }
    }
  }
}

/// What the worker called by one of these names before, and was other content, is gone.
void ChainIndex::drop_renamed(const Storing& storing) {
  const Slot slot = storing.slot;
  const bool own = slots_[slot].has_own_names;
  if (storing.by_content && !own) {
    return;
  }
  const auto is_content = [&](size_t i) {
    return storing.blocks[i].external.value() == storing.sequences[i] && !own;
  };
  for (size_t i = 0; i < storing.blocks.size(); ++i) {
    if (i % kPrefetch == 0 && !is_content(i)) {
      prefetch_names(storing, i);
    }
    if (is_content(i)) {
      continue;  // its name is its content
    }
    const uint64_t name = storing.blocks[i].external.value();
    const auto row = own ? resolve(slot, name) : find_shared(name, storing.names[i]);
    if (!row || arena_.sequence(*row) == storing.sequences[i] || !holds(*row, slot)) {
      continue;
    }
    drop_own_name(slot, name);
    const Place place = place_of(*row);
    const uint32_t dropped = drop_holder(place.chain, {slot, place.offset, place.offset + 1});
    slots_[slot].blocks -= dropped;
    holder_blocks_ -= dropped;
  }
}

/// Gives `row` the name that the worker has for it. Rows from `first` on belong to the same run.
/// False when the worker has that name for another row already: one name for two blocks.
bool ChainIndex::bind(const Storing& storing, size_t at, uint32_t row, uint32_t first) {
  const uint64_t name = storing.blocks[at].external.value();
  SlotEntry& entry = slots_[storing.slot];
  if (!entry.has_own_names && !PositionTable::is_reserved(name)) {
    if (PositionTable::name_of(arena_, row) == name) {
      return true;
    }
    const bool unnamed = arena_.external(row) == PositionTable::kUnnamed;
    const auto taken = positions_.find(name, storing.names[at]);
    if (unnamed && !taken) {
      arena_.set_external(row, name == storing.sequences[at] ? 0 : name);
      positions_.find_or_insert(name, storing.names[at], row);
      return true;
    }
    if (taken && ((*taken >= first && *taken < row) || holds(*taken, storing.slot))) {
      return false;
    }
  }
  if (!entry.has_own_names) {
    const uint32_t bound = row - first;
    fork_names(storing.slot);
    for (uint32_t i = 0; i < bound; ++i) {  // of this run, not yet held
      bind_own_name(storing.slot, storing.blocks[at - bound + i].external.value(), first + i);
    }
  }
  const auto before = resolve(storing.slot, name);
  if (before && *before != row &&
      ((*before >= first && *before < row) || holds(*before, storing.slot))) {
    return false;
  }
  bind_own_name(storing.slot, name, row);
  return true;
}

/// The same for a row that nobody has named yet.
bool ChainIndex::bind_new(const Storing& storing, size_t at, uint32_t row, uint32_t first) {
  const uint64_t key = storing.blocks[at].external.value();
  if (!slots_[storing.slot].has_own_names && !PositionTable::is_reserved(key)) {
    arena_.set_external(row, key == storing.sequences[at] ? 0 : key);
    if (!positions_.find_or_insert(key, storing.names[at], row)) {
      return true;
    }
  }
  arena_.set_external(row, PositionTable::kUnnamed);
  return bind(storing, at, row, first);
}

// ── Removed ──

Applied ChainIndex::remove(Slot slot, const kv::BlocksRemoved& run) {
  Applied applied = Applied::kOk;
  // Neighbouring rows are edited together: engines free a sequence's blocks one after the other,
  // from its end.
  uint32_t low = 0;
  uint32_t high = 0;  // pending rows [low, high)
  // Where names are contents: the worker holds [held_from, low), too. The row before the last one
  // is likely the one meant next, which then takes a comparison.
  uint32_t held_from = 0;
  const auto flush = [&] {
    if (low < high) {
      const Place place = place_of(low);
      const uint32_t dropped =
          drop_holder(place.chain, {slot, place.offset, place.offset + (high - low)});
      slots_[slot].blocks -= dropped;
      holder_blocks_ -= dropped;
    }
    low = high = held_from = 0;
  };
  // Of the stretch of rows around one that the worker holds.
  const auto first_held = [&](uint32_t row) {
    const Place place = place_of(row);
    const ChainHolders::View holders = chain(place.chain).holders.view();
    uint32_t at = holders.lower_bound(slot << 16 | place.offset << 8);
    const bool begins_here =
        at < holders.size() && holders[at].slot == slot && holders[at].from == place.offset;
    at -= begins_here ? 0 : 1;
    return row - place.offset + holders[at].from;
  };
  const bool by_content = !arena_.any_external() && !slots_[slot].has_own_names;
  for (size_t at = 0; at < run.blocks.size(); ++at) {
    if (held_from < low) {
      const std::span names = std::span(run.blocks).subspan(at);
      const uint32_t more = count_above(arena_.sequence_address(low), low - held_from, names);
      low -= more;
      at += more;
      if (more == names.size()) {
        break;
      }
    }
    const blocks::ExternalHash external = run.blocks[at];
    const auto row = resolve(slot, external.value());
    drop_own_name(slot, external.value());  // whatever it was, the name is free again
    if (!row || !holds(*row, slot)) {
      applied = Applied::kUnknownBlock;
      continue;
    }
    const bool touches =
        low < high && (*row == high || *row + 1 == low) && arena_.owner(*row) == arena_.owner(low);
    if (!touches && !(*row >= low && *row < high)) {
      flush();
      low = *row;
      high = *row + 1;
    } else {
      low = std::min(low, *row);
      high = std::max(high, *row + 1);
    }
    held_from = by_content ? first_held(*row) : low;
  }
  flush();
  return applied;
}

}  // namespace stator::router
