// SPDX-License-Identifier: Apache-2.0
// A ChainIndex as bytes, and back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

// Workers, then chains, then the names of workers that have their own:
//   u32 workers, u32 chains, u32 workers with names, u32 1 if blocks have names
//   per worker   u64 id, u32 rank
//   per chain    u16 rows, u16 fork, u32 holders, u32 number of the chain behind it + 1
//                u32 × holders, u64 × rows sequence hashes, u64 × rows names if blocks have any
//   per worker with names   u32 worker, u32 names; per name u64 name, u32 chain, u32 row
struct Counts {
  uint32_t workers = 0;
  uint32_t chains = 0;
  uint32_t naming = 0;
  uint32_t has_names = 0;
};
struct ChainHead {
  uint16_t length = 0;
  uint16_t fork = 0;
  uint32_t holders = 0;
  uint32_t next = 0;
};
static_assert(sizeof(Counts) == 16 && sizeof(ChainHead) == 12);

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kPrefetch = 16;

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("the index snapshot contradicts itself: {}", what)};
}

/// Sorted stretches inside the chain that do not touch, the last row among them.
bool is_valid(std::span<const uint32_t> holds, uint32_t length, uint32_t workers) {
  uint32_t end = 0;
  for (size_t i = 0; i < holds.size(); ++i) {
    const auto hold = ChainHolders::Hold::of(holds[i]);
    if (hold.slot >= workers || hold.from >= hold.to || hold.to > length) {
      return false;
    }
    if (i > 0) {
      const auto before = ChainHolders::Hold::of(holds[i - 1]);
      if (before.slot > hold.slot || (before.slot == hold.slot && before.to >= hold.from)) {
        return false;
      }
    }
    end = std::max(end, hold.to);
  }
  return end == length;
}

}  // namespace

// ── Saving ──

class ChainIndex::Saver {
 public:
  Saver(const ChainIndex& index, ByteWriter& out) : index_(index), out_(out) {}

  void run() {
    worker_of_.assign(index_.slots_.size(), kNone);
    std::vector<Slot> workers;
    for (Slot slot = 0; slot < index_.slots_.size(); ++slot) {
      if (index_.slot_keys_[slot].alive.load(std::memory_order_relaxed) != 0) {
        worker_of_[slot] = static_cast<uint32_t>(workers.size());
        workers.push_back(slot);
      }
    }
    number_.assign(index_.chains_top_, kNone);
    Counts counts{.workers = static_cast<uint32_t>(workers.size()),
                  .has_names = index_.arena_.any_external() ? 1U : 0U};
    for (uint32_t id = 1; id < index_.chains_top_; ++id) {
      if (rows_of(id) > 0) {
        number_[id] = counts.chains++;
      }
    }
    for (const Slot slot : workers) {
      counts.naming += index_.slots_[slot].has_own_names ? 1 : 0;
    }
    out_.put(counts);
    for (const Slot slot : workers) {
      const SlotKey& key = index_.slot_keys_[slot];
      out_.put(key.worker.load(std::memory_order_relaxed));
      out_.put(key.dp_rank.load(std::memory_order_relaxed));
    }
    for (uint32_t id = 1; id < index_.chains_top_; ++id) {
      if (number_[id] != kNone) {
        put_chain(id);
      }
    }
    for (const Slot slot : workers) {
      if (index_.slots_[slot].has_own_names) {
        put_names(slot);
      }
    }
  }

 private:
  /// Rows up to the last that a living worker holds; fills `holds_`.
  uint32_t rows_of(uint32_t id) {
    const ChainHolders::View view = index_.chain(id).holders.view();
    uint32_t rows = 0;
    holds_.clear();
    for (uint32_t i = 0; i < view.size(); ++i) {
      ChainHolders::Hold hold = view[i];
      if (worker_of_[hold.slot] != kNone) {
        hold.slot = worker_of_[hold.slot];
        holds_.push_back(hold.word());
        rows = std::max(rows, hold.to);
      }
    }
    return rows;
  }

  void put_chain(uint32_t id) {
    const Chain& target = index_.chain(id);
    const uint32_t rows = rows_of(id);
    const uint32_t base = target.base.load(std::memory_order_relaxed);
    const uint32_t fork = target.fork.load(std::memory_order_relaxed);
    const uint32_t next = target.next.load(std::memory_order_relaxed);
    const bool goes_on = rows == target.length.load(std::memory_order_relaxed) && next != 0 &&
                         number_[next] != kNone;
    out_.put(ChainHead{.length = static_cast<uint16_t>(rows),
                       .fork = static_cast<uint16_t>(fork < rows ? fork : 0),
                       .holders = static_cast<uint32_t>(holds_.size()),
                       .next = goes_on ? number_[next] + 1 : 0});
    out_.put_all(std::span<const uint32_t>(holds_));
    out_.put_all(std::span(index_.arena_.sequence_address(base), rows));
    if (index_.arena_.any_external()) {
      out_.put_all(std::span(index_.arena_.external_address(base), rows));
    }
  }

  void put_names(Slot slot) {
    out_.put(worker_of_[slot]);
    const size_t count_at = out_.size();
    out_.put(uint32_t{0});
    uint32_t count = 0;
    for (const auto& [name, value] : index_.slots_[slot].own_names) {
      const auto row = index_.resolve(slot, name);
      if (!row || !index_.holds(*row, slot)) {
        continue;
      }
      const Place place = index_.place_of(*row);
      out_.put(name);
      out_.put(number_[place.chain]);
      out_.put(place.offset);
      ++count;
    }
    out_.set(count_at, count);
  }

  const ChainIndex& index_;
  ByteWriter& out_;
  std::vector<uint32_t> worker_of_;  // by slot
  std::vector<uint32_t> number_;     // by chain id
  std::vector<uint32_t> holds_;
};

void ChainIndex::save(ByteWriter& out) const {
  Saver(*this, out).run();
}

// ── Restoring ──

class ChainIndex::Loader {
 public:
  Loader(ChainIndex& index, ByteReader& in) : index_(index), in_(in) {}

  Status run() {
    counts_ = in_.get<Counts>();
    if (counts_.workers > kSlotsMax || counts_.naming > counts_.workers || counts_.has_names > 1) {
      return corrupt("impossible numbers of workers");
    }
    for (uint32_t i = 0; i < counts_.workers; ++i) {
      const auto id = in_.get<uint64_t>();
      const WorkerKey key{WorkerId(id), in_.get<uint32_t>()};
      if (in_.failed() || index_.slot_of(key) != i) {
        return corrupt("a worker is named twice or missing");
      }
    }
    for (uint32_t i = 0; i < counts_.chains; ++i) {
      STATOR_CHECK(take_chain());
    }
    // Where chains go on: only hints, and those behind what did not fit lead nowhere.
    for (size_t i = 0; i < ids_.size(); ++i) {
      const uint32_t next = next_[i] > 0 && next_[i] <= ids_.size() ? ids_[next_[i] - 1] : 0;
      if (ids_[i] != 0) {
        index_.chain(ids_[i]).next.store(next, std::memory_order_relaxed);
      }
    }
    for (uint32_t i = 0; i < counts_.naming; ++i) {
      STATOR_CHECK(take_names());
    }
    return in_.left() == 0 && !in_.failed() ? Status() : corrupt("it does not end where it should");
  }

 private:
  Status take_chain() {
    const auto head = in_.get<ChainHead>();
    if (in_.failed() || head.length == 0 || head.length > BlockArena::kRangeMax ||
        head.fork >= head.length || head.holders > in_.left() / sizeof(uint32_t)) {
      return corrupt("a chain has an impossible length");
    }
    holds_.resize(head.holders);
    sequences_.resize(head.length);
    names_.assign(head.length, 0);
    in_.get_all(std::span(holds_));
    in_.get_all(std::span(sequences_));
    if (counts_.has_names != 0) {
      in_.get_all(std::span(names_));
    }
    if (in_.failed() || !is_valid(holds_, head.length, counts_.workers)) {
      return corrupt("a chain's holders do not fit it");
    }
    next_.push_back(head.next);
    // What does not fit is left out: a chain less is known.
    const bool fits = !index_.over_budget(head.length);
    const auto id = fits ? index_.new_chain(head.length) : std::nullopt;
    ids_.push_back(id.value_or(0));
    if (!id) {
      index_.stats_.refused_blocks += head.length;
      return {};
    }
    return place(*id, head);
  }

  Status place(uint32_t id, const ChainHead& head) {
    if (index_.find_head(sequences_.front())) {
      return corrupt("two chains begin with the same block");
    }
    Chain& fresh = index_.chain(id);
    STATOR_CHECK(name_rows(fresh.base.load(std::memory_order_relaxed)));
    fresh.head.store(sequences_.front(), std::memory_order_relaxed);
    fresh.tail.store(sequences_.back(), std::memory_order_relaxed);
    fresh.fork.store(head.fork, std::memory_order_relaxed);
    fresh.touched.store(index_.tick_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    index_.change_holders(fresh, [&](ChainHolders& list) { return list.assign(holds_); });
    fresh.length.store(head.length, std::memory_order_release);
    if (auto old = index_.heads_.insert(sequences_.front(), id, HeadTable::Grow::kYes)) {
      index_.retire(std::move(old));
    }
    for (const uint32_t word : holds_) {
      const auto hold = ChainHolders::Hold::of(word);
      index_.slots_[hold.slot].blocks += hold.to - hold.from;
      index_.holder_blocks_ += hold.to - hold.from;
    }
    return {};
  }

  Status name_rows(uint32_t base) {
    const auto count = static_cast<uint32_t>(sequences_.size());
    const auto name_of = [&](uint32_t i) { return names_[i] != 0 ? names_[i] : sequences_[i]; };
    for (uint32_t i = 0; i < count + kPrefetch; ++i) {
      if (i < count) {
        index_.positions_.prefetch(index_.positions_.hash_of(name_of(i)));
      }
      if (i < kPrefetch) {
        continue;
      }
      const uint32_t at = i - kPrefetch;
      index_.arena_.set_sequence(base + at, sequences_[at]);
      if (counts_.has_names != 0) {
        index_.arena_.set_external(base + at, names_[at]);
      }
      const uint64_t name = name_of(at);
      if (name == PositionTable::kUnnamed) {
        continue;
      }
      if (PositionTable::is_reserved(name) ||
          index_.positions_.find_or_insert(name, index_.positions_.hash_of(name), base + at)) {
        return corrupt("two blocks have the same name");
      }
    }
    return {};
  }

  Status take_names() {
    const auto slot = in_.get<uint32_t>();
    const auto count = in_.get<uint32_t>();
    if (in_.failed() || slot >= counts_.workers || index_.slots_[slot].has_own_names) {
      return corrupt("names of a worker that is not there");
    }
    index_.slots_[slot].has_own_names = true;
    ++index_.stats_.forked_workers;
    bool fits = true;
    for (uint32_t i = 0; i < count; ++i) {
      const auto name = in_.get<uint64_t>();
      const auto number = in_.get<uint32_t>();
      const auto offset = in_.get<uint32_t>();
      if (in_.failed() || number >= ids_.size()) {
        return corrupt("a name of a block that is not there");
      }
      if (ids_[number] == 0) {
        continue;  // did not fit
      }
      const Chain& target = index_.chain(ids_[number]);
      if (offset >= target.length.load(std::memory_order_relaxed)) {
        return corrupt("a name of a block that is not there");
      }
      // Without all of its names a worker could not take back what it reported.
      fits = fits && !index_.over_budget(0);
      if (fits) {
        index_.bind_own_name(slot, name, target.base.load(std::memory_order_relaxed) + offset);
      }
    }
    if (!fits) {
      const SlotKey& key = index_.slot_keys_[slot];
      index_.stats_.refused_blocks += index_.slots_[slot].blocks;
      index_.remove_worker({WorkerId(key.worker.load()), key.dp_rank.load()});
    }
    return {};
  }

  ChainIndex& index_;
  ByteReader& in_;
  Counts counts_;
  std::vector<uint32_t> ids_;   // by number in the file; 0 = left out
  std::vector<uint32_t> next_;  // the same, as the file has them
  std::vector<uint32_t> holds_;
  std::vector<uint64_t> sequences_;
  std::vector<uint64_t> names_;
};

Result<std::unique_ptr<ChainIndex>> ChainIndex::restore(const Config& config, ByteReader& in) {
  STATOR_TRY(auto index, create(config));
  STATOR_CHECK(Loader(*index, in).run());
  return index;
}

std::vector<WorkerKey> ChainIndex::workers() const {
  std::vector<WorkerKey> keys;
  for (const auto& [key, slot] : slot_by_worker_) {
    keys.push_back(key);
  }
  std::ranges::sort(keys);
  return keys;
}

}  // namespace stator::router
