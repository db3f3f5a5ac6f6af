// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/ttl_index.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace stator::router {

Result<std::unique_ptr<TtlIndex>> TtlIndex::create(const Config& config) {
  if (config.ttl < kTick || config.blocks_per_worker_max == 0) {
    return Error(Code::kInvalidArgument,
                 "an approximate index needs a time to live of at least 100ms and room for blocks");
  }
  STATOR_TRY(auto chains, ChainIndex::create({.bytes_max = config.bytes_max / 2}));
  return std::unique_ptr<TtlIndex>(new TtlIndex(config, std::move(chains)));
}

size_t TtlIndex::memory_bytes() const {
  // absl's map: a 16-byte pair and a control byte per slot.
  return chains_->memory_bytes() + entries_.capacity() * sizeof(Entry) +
         free_.capacity() * sizeof(uint32_t) + map_slots_ * 17 + workers_.size() * sizeof(Worker);
}

Applied TtlIndex::apply(WorkerKey worker, const kv::KvEvent& event) {
  if (std::holds_alternative<kv::AllCleared>(event.data)) {
    remove_worker(worker);
    return Applied::kOk;
  }
  return Applied::kNotFollowed;
}

void TtlIndex::remove_worker(WorkerKey worker) {
  chains_->remove_worker(worker);
  const auto known = worker_at_.find(worker);
  if (known == worker_at_.end()) {
    return;
  }
  const size_t at = known->second;
  worker_at_.erase(known);
  Worker& gone = *workers_[at];
  for (const auto& [sequence, id] : gone.entries) {
    free_.push_back(id);
  }
  count_ -= gone.entries.size();
  map_slots_ -= gone.entries.capacity();
  workers_[at] = std::move(workers_.back());
  workers_.pop_back();
  if (at < workers_.size()) {
    worker_at_[workers_[at]->key] = at;
  }
}

TtlIndex::Worker& TtlIndex::worker_of(WorkerKey key) {
  const auto [known, fresh] = worker_at_.try_emplace(key, workers_.size());
  if (fresh) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->key = key;
  }
  return *workers_[known->second];
}

void TtlIndex::unlink(Worker& worker, uint32_t id) {
  const Entry& entry = entries_[id];
  (entry.newer == kNone ? worker.newest : entries_[entry.newer].older) = entry.older;
  (entry.older == kNone ? worker.oldest : entries_[entry.older].newer) = entry.newer;
}

/// Makes the block the worker's newest.
void TtlIndex::touch(Worker& worker, blocks::SequenceHash sequence) {
  const size_t slots = worker.entries.capacity();
  const auto [known, fresh] = worker.entries.try_emplace(sequence, 0);
  map_slots_ += worker.entries.capacity() - slots;
  if (!fresh) {
    unlink(worker, known->second);
  } else if (free_.empty()) {
    known->second = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    known->second = free_.back();
    free_.pop_back();
  }
  count_ += fresh ? 1 : 0;
  const uint32_t id = known->second;
  const uint32_t uses = fresh ? 0 : entries_[id].uses;
  entries_[id] = {.sequence = sequence,
                  .used = tick_,
                  .uses = uses == UINT32_MAX ? uses : uses + 1,
                  .newer = kNone,
                  .older = worker.newest};
  (worker.newest == kNone ? worker.oldest : entries_[worker.newest].newer) = id;
  worker.newest = id;
}

void TtlIndex::record(WorkerKey key, std::span<const blocks::SequenceHash> sequences,
                      TimePoint now) {
  expire(now);
  if (sequences.empty()) {
    return;
  }
  Worker& worker = worker_of(key);
  (void)chains_->store_prefix(key, sequences);
  // The last block first: T1 holds because a block is always newer than those behind it.
  for (size_t i = sequences.size(); i-- > 0;) {
    touch(worker, sequences[i]);
  }
  prune(worker);
}

std::vector<uint64_t> TtlIndex::frequencies(std::span<const blocks::SequenceHash> sequences) const {
  std::vector<uint64_t> out;
  for (const blocks::SequenceHash sequence : sequences) {
    uint64_t uses = 0;
    for (const std::unique_ptr<Worker>& worker : workers_) {
      const auto known = worker->entries.find(sequence);
      uses += known == worker->entries.end() ? 0 : entries_[known->second].uses;
    }
    if (uses == 0) {
      break;
    }
    out.push_back(uses);
  }
  return out;
}

blocks::ExternalHash TtlIndex::take_oldest(Worker& worker) {
  const uint32_t id = worker.oldest;
  const blocks::SequenceHash sequence = entries_[id].sequence;
  unlink(worker, id);
  worker.entries.erase(sequence);
  free_.push_back(id);
  --count_;
  return blocks::ExternalHash(sequence.value());
}

void TtlIndex::forget(Worker& worker, std::vector<blocks::ExternalHash> gone) {
  if (!gone.empty()) {
    chains_->apply(worker.key, {.data = kv::BlocksRemoved{std::move(gone)}});
  }
}

void TtlIndex::prune(Worker& worker) {
  std::vector<blocks::ExternalHash> gone;
  while (worker.entries.size() > config_.blocks_per_worker_max) {
    gone.push_back(take_oldest(worker));
  }
  stats_.pruned_blocks += gone.size();
  forget(worker, std::move(gone));
  // All together: every worker in turn gives a few.
  constexpr size_t kShare = 64;
  const uint64_t blocks_max = std::max<uint64_t>(1, config_.bytes_max / 2 / kBytesPerBlock);
  while (count_ > blocks_max) {
    Worker& next = *workers_[prune_next_++ % workers_.size()];
    std::vector<blocks::ExternalHash> share;
    while (share.size() < kShare && next.oldest != kNone && count_ > blocks_max) {
      share.push_back(take_oldest(next));
    }
    stats_.pruned_blocks += share.size();
    forget(next, std::move(share));
  }
}

void TtlIndex::expire(TimePoint now) {
  const auto tick = static_cast<uint32_t>(now.time_since_epoch() / kTick);
  if (tick <= tick_) {
    return;
  }
  tick_ = tick;
  const auto lifetime = static_cast<uint32_t>((config_.ttl + kTick - Duration(1)) / kTick);
  for (const std::unique_ptr<Worker>& worker : workers_) {
    std::vector<blocks::ExternalHash> gone;
    while (worker->oldest != kNone && tick - entries_[worker->oldest].used > lifetime) {
      gone.push_back(take_oldest(*worker));
    }
    stats_.expired_blocks += gone.size();
    forget(*worker, std::move(gone));
  }
}

}  // namespace stator::router
