// SPDX-License-Identifier: Apache-2.0
#include "stator/router/kv_index.h"

#include <algorithm>
#include <array>

namespace stator::router {

std::string_view describe(Trust trust) {
  constexpr std::array<std::string_view, kTrustCount> kNames = {"exact", "degraded", "approximate"};
  return kNames[static_cast<size_t>(trust)];
}

ExactIndex::ExactIndex(uint64_t holder_blocks_max) : holder_blocks_max_(holder_blocks_max) {}

Applied ExactIndex::apply(WorkerKey worker, const kv::KvEvent& event) {
  if (std::holds_alternative<kv::AllCleared>(event.data)) {
    remove_worker(worker);
    return Applied::kOk;
  }
  if (event.tier != kv::StorageTier::kDevice) {
    return Applied::kIgnoredTier;
  }
  if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
    return store(worker, *stored);
  }
  return remove(worker, std::get<kv::BlocksRemoved>(event.data));
}

Applied ExactIndex::store(WorkerKey worker, const kv::BlocksStored& run) {
  Domain& domain = domains_[worker];
  bool first = !run.parent.has_value();
  blocks::SequenceHash parent;
  if (!first) {
    const auto known = domain.find(*run.parent);
    if (known == domain.end()) {
      return Applied::kUnknownParent;
    }
    parent = known->second;
  }
  for (const kv::StoredBlock& block : run.blocks) {
    const blocks::SequenceHash sequence =
        first ? blocks::chain(block.local) : blocks::chain(parent, block.local);
    first = false;
    parent = sequence;
    if (holder_blocks_ >= holder_blocks_max_ && !domain.contains(block.external)) {
      return Applied::kOverBudget;
    }
    const auto [name, fresh] = domain.try_emplace(block.external, sequence);
    if (!fresh && name->second != sequence) {
      drop_holder(name->second, worker);  // the worker reused its id for other content
      name->second = sequence;
    }
    std::vector<WorkerKey>& holders = holders_[sequence];
    if (std::ranges::find(holders, worker) == holders.end()) {
      holders.push_back(worker);
      ++holder_blocks_;
    }
  }
  return Applied::kOk;
}

Applied ExactIndex::remove(WorkerKey worker, const kv::BlocksRemoved& run) {
  const auto domain = domains_.find(worker);
  Applied applied = Applied::kOk;
  for (const blocks::ExternalHash external : run.blocks) {
    const auto name = domain == domains_.end() ? Domain::iterator() : domain->second.find(external);
    if (domain == domains_.end() || name == domain->second.end()) {
      applied = Applied::kUnknownBlock;
      continue;
    }
    const blocks::SequenceHash sequence = name->second;
    domain->second.erase(name);
    drop_holder(sequence, worker);
  }
  return applied;
}

void ExactIndex::drop_holder(blocks::SequenceHash block, WorkerKey worker) {
  const auto entry = holders_.find(block);
  if (entry == holders_.end()) {
    return;
  }
  std::vector<WorkerKey>& holders = entry->second;
  const auto holder = std::ranges::find(holders, worker);
  if (holder != holders.end()) {
    *holder = holders.back();
    holders.pop_back();
    --holder_blocks_;
  }
  if (holders.empty()) {
    holders_.erase(entry);
  }
}

void ExactIndex::remove_worker(WorkerKey worker) {
  const auto domain = domains_.find(worker);
  if (domain == domains_.end()) {
    return;
  }
  const Domain names = std::move(domain->second);
  domains_.erase(domain);
  for (const auto& [external, sequence] : names) {
    drop_holder(sequence, worker);
  }
}

void ExactIndex::find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                    std::vector<Overlap>& found) const {
  found.clear();
  std::vector<WorkerKey> still_matching;
  for (uint32_t depth = 0; depth < sequences.size(); ++depth) {
    const auto entry = holders_.find(sequences[depth]);
    if (entry == holders_.end()) {
      break;
    }
    std::vector<WorkerKey> next;
    for (const WorkerKey& holder : entry->second) {
      if (depth == 0 || std::ranges::find(still_matching, holder) != still_matching.end()) {
        next.push_back(holder);
      }
    }
    if (next.empty()) {
      break;
    }
    for (const WorkerKey& holder : next) {
      const auto overlap = std::ranges::find(found, holder, &Overlap::worker);
      if (overlap == found.end()) {
        found.push_back({holder, depth + 1});
      } else {
        overlap->blocks = depth + 1;
      }
    }
    still_matching = std::move(next);
  }
}

}  // namespace stator::router
