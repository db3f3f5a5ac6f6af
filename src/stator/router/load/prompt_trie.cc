// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/prompt_trie.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

using blocks::SequenceHash;

/// Leading entries that are equal. Chained hashes: once two differ, all later ones do.
uint32_t common_length(std::span<const SequenceHash> a, std::span<const SequenceHash> b) {
  const size_t both = std::min(a.size(), b.size());
  if (both == 0 || a[both - 1] == b[both - 1]) {
    return static_cast<uint32_t>(both);
  }
  size_t equal = 0;
  size_t differ = both - 1;
  while (equal < differ) {
    const size_t middle = (equal + differ) / 2;
    if (a[middle] == b[middle]) {
      equal = middle + 1;
    } else {
      differ = middle;
    }
  }
  return static_cast<uint32_t>(equal);
}

}  // namespace

PromptTrie::Node PromptTrie::make_node(Node parent, std::vector<SequenceHash> hashes) {
  Node node = 0;
  if (free_.empty()) {
    node = static_cast<Node>(nodes_.size());
    nodes_.emplace_back();
  } else {
    node = free_.back();
    free_.pop_back();
  }
  by_first_hash_[hashes.front()] = node;
  nodes_[node].parent = parent;
  nodes_[node].hashes = std::move(hashes);
  return node;
}

PromptTrie::Node PromptTrie::split(Node node, uint32_t length) {
  std::vector<SequenceHash>& hashes = nodes_[node].hashes;
  std::vector<SequenceHash> head(hashes.begin(), hashes.begin() + length);
  hashes.erase(hashes.begin(), hashes.begin() + length);
  by_first_hash_[hashes.front()] = node;
  const Node upper = make_node(nodes_[node].parent, std::move(head));
  nodes_[upper].holders = nodes_[node].holders;
  nodes_[node].parent = upper;
  return upper;
}

uint32_t PromptTrie::hold(Node node, LoadSlot slot, Owner owner, std::vector<Change>& changes) {
  Run& run = nodes_[node];
  const int64_t length = static_cast<int64_t>(run.hashes.size());
  const auto at = std::ranges::lower_bound(run.holders, slot, {}, &Holder::slot);
  if (at == run.holders.end() || at->slot != slot) {
    run.holders.insert(at, {.slot = slot, .requests = 1, .owner_xor = owner});
    changes.push_back({owner, length});
    return static_cast<uint32_t>(length);
  }
  if (at->requests == 1) {
    changes.push_back({at->owner_xor, -length});
  }
  ++at->requests;
  at->owner_xor ^= owner;
  return 0;
}

PromptTrie::Inserted PromptTrie::insert(LoadSlot slot, Owner owner,
                                        std::span<const SequenceHash> chain,
                                        std::vector<Change>& changes) {
  changes.clear();
  Inserted inserted;
  while (!chain.empty()) {
    const auto known = by_first_hash_.find(chain.front());
    Node node = kNone;
    size_t matched = chain.size();
    if (known == by_first_hash_.end()) {
      node = make_node(inserted.leaf, {chain.begin(), chain.end()});
    } else {
      node = known->second;
      matched = common_length(nodes_[node].hashes, chain);
      if (matched < nodes_[node].hashes.size()) {
        node = split(node, static_cast<uint32_t>(matched));
      }
    }
    inserted.new_blocks += hold(node, slot, owner, changes);
    inserted.leaf = node;
    chain = chain.subspan(matched);
  }
  return inserted;
}

uint32_t PromptTrie::erase(LoadSlot slot, Owner owner, Node leaf, std::vector<Change>& changes) {
  changes.clear();
  uint32_t gone = 0;
  for (Node node = leaf; node != kNone;) {
    Run& run = nodes_[node];
    const Node parent = run.parent;
    const auto at = std::ranges::lower_bound(run.holders, slot, {}, &Holder::slot);
    STATOR_ASSERT(at != run.holders.end() && at->slot == slot, "T1: erased once, where inserted");
    at->owner_xor ^= owner;
    if (--at->requests == 1) {
      changes.push_back({at->owner_xor, static_cast<int64_t>(run.hashes.size())});
    } else if (at->requests == 0) {
      gone += static_cast<uint32_t>(run.hashes.size());
      run.holders.erase(at);
    }
    if (run.holders.empty()) {
      by_first_hash_.erase(run.hashes.front());
      run.hashes = {};
      free_.push_back(node);
    }
    node = parent;
  }
  return gone;
}

void PromptTrie::find(std::span<const SequenceHash> chain, std::span<uint32_t> depths) const {
  uint32_t depth = 0;
  while (!chain.empty()) {
    const auto known = by_first_hash_.find(chain.front());
    if (known == by_first_hash_.end()) {
      return;
    }
    const Run& run = nodes_[known->second];
    const uint32_t matched = common_length(run.hashes, chain);
    depth += matched;
    for (const Holder& holder : run.holders) {
      if (holder.slot < depths.size()) {
        depths[holder.slot] = depth;
      }
    }
    if (matched < run.hashes.size()) {
      return;
    }
    chain = chain.subspan(matched);
  }
}

void PromptTrie::find_holders(SequenceHash first, std::vector<LoadSlot>& slots) const {
  if (const auto known = by_first_hash_.find(first); known != by_first_hash_.end()) {
    for (const Holder& holder : nodes_[known->second].holders) {
      slots.push_back(holder.slot);
    }
  }
}

}  // namespace stator::router
