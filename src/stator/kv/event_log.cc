// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"

namespace stator::kv {
namespace {

size_t block_entries(const KvEventData& data) {
  if (const auto* stored = std::get_if<BlocksStored>(&data)) {
    return stored->blocks.size();
  }
  if (const auto* removed = std::get_if<BlocksRemoved>(&data)) {
    return removed->blocks.size();
  }
  return 0;
}

/// A stored block in the forest that a snapshot walks. Node 0 is the parent of all first blocks,
/// and so nobody's child: index 0 ends every list.
struct Node {
  StoredBlock block;
  std::optional<blocks::ExternalHash> parent;
  bool continues = false;  // what another tier holds
  uint32_t first_child = 0;
  uint32_t next_sibling = 0;
};

/// Sorts by hash, so that equal states give equal snapshots, and fills in the links.
void link_children(std::vector<Node>& nodes) {
  std::sort(nodes.begin() + 1, nodes.end(),
            [](const Node& a, const Node& b) { return a.block.external < b.block.external; });
  for (size_t i = nodes.size(); i-- > 1;) {
    size_t parent = 0;
    if (nodes[i].parent && !nodes[i].continues) {
      const auto found = std::lower_bound(
          nodes.begin() + 1, nodes.end(), *nodes[i].parent,
          [](const Node& node, blocks::ExternalHash hash) { return node.block.external < hash; });
      if (found == nodes.end() || found->block.external != *nodes[i].parent) {
        continue;  // its parent was removed before it: nobody can reach this block
      }
      parent = static_cast<size_t>(found - nodes.begin());
    }
    nodes[i].next_sibling = std::exchange(nodes[parent].first_child, static_cast<uint32_t>(i));
  }
}

/// Runs that follow first children; each other child starts a run of its own, later.
std::vector<BlocksStored> walk(const std::vector<Node>& nodes) {
  std::vector<BlocksStored> runs;
  std::vector<uint32_t> starts;
  const auto push_siblings = [&](uint32_t first) {
    for (uint32_t at = first; at != 0; at = nodes[at].next_sibling) {
      starts.push_back(at);
    }
  };
  push_siblings(nodes[0].first_child);
  while (!starts.empty()) {
    uint32_t at = starts.back();
    starts.pop_back();
    BlocksStored& run = runs.emplace_back();
    run.parent = nodes[at].parent;
    for (; at != 0; at = nodes[at].first_child) {
      run.blocks.push_back(nodes[at].block);
      push_siblings(nodes[nodes[at].first_child].next_sibling);
    }
  }
  return runs;
}

}  // namespace

uint64_t EventLog::append(KvEventData data) {
  std::vector<KvEvent> batch;
  batch.push_back({.dp_rank = dp_rank_, .data = std::move(data)});
  return append(std::move(batch));
}

uint64_t EventLog::append(std::vector<KvEventData> batch) {
  std::vector<KvEvent> events;
  events.reserve(batch.size());
  for (KvEventData& data : batch) {
    events.push_back({.dp_rank = dp_rank_, .data = std::move(data)});
  }
  return append(std::move(events));
}

uint64_t EventLog::append(std::vector<KvEvent> batch) {
  const bool news = !batch.empty();
  uint64_t last = 0;
  {
    const MutexLock lock(mutex_);
    for (KvEvent& event : batch) {
      append_one(std::move(event));
    }
    trim();
    last = last_id_;
  }
  if (news) {
    wake();
  }
  return last;
}

void EventLog::append_one(KvEvent event) {
  Tiers& tiers = mirror_[event.dp_rank];
  if (const auto* stored = std::get_if<BlocksStored>(&event.data)) {
    apply(*stored, tiers, event.tier);
  } else if (const auto* removed = std::get_if<BlocksRemoved>(&event.data)) {
    for (const blocks::ExternalHash block : removed->blocks) {
      mirrored_ -= tiers[static_cast<size_t>(event.tier)].erase(block);
    }
  } else {
    for (Mirror& mirror : tiers) {
      mirrored_ -= mirror.size();
      mirror.clear();
    }
  }
  ring_blocks_ += block_entries(event.data);
  event.event_id = ++last_id_;
  ring_.push_back(std::move(event));
}

bool EventLog::holds(const Tiers& tiers, blocks::ExternalHash block) {
  return std::ranges::any_of(tiers, [&](const Mirror& mirror) { return mirror.contains(block); });
}

void EventLog::apply(const BlocksStored& stored, Tiers& tiers, StorageTier tier) {
  std::optional<blocks::ExternalHash> parent = stored.parent;
  if (parent && !holds(tiers, *parent)) {
    return;  // nobody could reach these blocks
  }
  Mirror& mirror = tiers[static_cast<size_t>(tier)];
  for (const StoredBlock& block : stored.blocks) {
    if (mirrored_ >= limits_.blocks_max && !mirror.contains(block.external)) {
      return;
    }
    mirrored_ += mirror.try_emplace(block.external, Mirrored{block.local, parent}).second ? 1 : 0;
    parent = block.external;
  }
}

void EventLog::trim() {
  while (ring_.size() > limits_.events_max || ring_blocks_ > limits_.blocks_max) {
    ring_blocks_ -= block_entries(ring_.front().data);
    ring_.pop_front();
  }
}

uint64_t EventLog::last_id() const {
  const MutexLock lock(mutex_);
  return last_id_;
}

EventLog::ReadResult EventLog::read_from(uint64_t from_id, size_t events_max) const {
  from_id = std::max<uint64_t>(from_id, 1);
  const MutexLock lock(mutex_);
  const uint64_t oldest = last_id_ - ring_.size() + 1;
  if (from_id < oldest || from_id > last_id_ + 1) {
    return Gap{.oldest_id = oldest, .last_id = last_id_};
  }
  const size_t skipped = from_id - oldest;
  const size_t count = std::min(events_max, ring_.size() - skipped);
  const auto begin = ring_.begin() + static_cast<ptrdiff_t>(skipped);
  return std::vector<KvEvent>(begin, begin + static_cast<ptrdiff_t>(count));
}

EventLog::Snapshot EventLog::snapshot() const {
  std::map<uint32_t, Tiers> copy;
  Snapshot out;
  {
    const MutexLock lock(mutex_);
    copy = mirror_;
    out.last_id = last_id_;
  }
  for (const auto& [rank, tiers] : copy) {
    for (size_t i = 0; i < kStorageTierCount; ++i) {
      const auto tier = static_cast<StorageTier>(i);
      for (BlocksStored& run : runs_of(tiers, tier)) {
        out.stored.push_back({std::move(run), rank, tier});
      }
    }
  }
  return out;
}

std::vector<BlocksStored> EventLog::runs_of(const Tiers& tiers, StorageTier tier) {
  const Mirror& mirror = tiers[static_cast<size_t>(tier)];
  std::vector<Node> nodes(1);
  nodes.reserve(mirror.size() + 1);
  for (const auto& [hash, entry] : mirror) {
    nodes.push_back({.block = {.external = hash, .local = entry.local},
                     .parent = entry.parent,
                     .continues = entry.parent && !mirror.contains(*entry.parent) &&
                                  holds(tiers, *entry.parent)});
  }
  link_children(nodes);
  return walk(nodes);
}

Status EventLog::subscribe(uint64_t from_id, EventLogListener* listener) {
  STATOR_ASSERT(listener != nullptr, "a subscription needs a listener");
  const MutexLock lock(listeners_mutex_);
  if (std::find(listeners_.begin(), listeners_.end(), listener) != listeners_.end()) {
    return Error(Code::kAlreadyExists, "this listener is subscribed to the KV event log already");
  }
  if (listeners_.size() >= limits_.listeners_max) {
    return Error(Code::kOverloaded,
                 fmt::format("the KV event log has {} subscribers, its limit; close some or raise "
                             "listeners_max",
                             listeners_.size()));
  }
  listeners_.push_back(listener);
  if (std::max<uint64_t>(from_id, 1) != last_id() + 1) {
    listener->on_events_available();
  }
  return {};
}

void EventLog::unsubscribe(EventLogListener* listener) {
  const MutexLock lock(listeners_mutex_);
  std::erase(listeners_, listener);
}

void EventLog::wake() {
  const MutexLock lock(listeners_mutex_);
  for (EventLogListener* listener : listeners_) {
    listener->on_events_available();
  }
}

}  // namespace stator::kv
