// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/block_pool.h"

#include <utility>

#include "stator/core/assert.h"

namespace stator::kv {
namespace {

/// Our engines announce blocks under their sequence hash.
blocks::ExternalHash external(blocks::SequenceHash hash) {
  return blocks::ExternalHash(hash.value());
}

}  // namespace

BlockPool::BlockPool(uint32_t total_blocks, Events events, HostTier* host, Eviction eviction)
    : blocks_(total_blocks), record_(events), host_(host) {
  STATOR_ASSERT(total_blocks > 0, "a pool has at least one block");
  if (eviction != Eviction::kLru) {
    order_.emplace(eviction, total_blocks);
    facts_.resize(total_blocks);
  }
  // The list is used as a stack: push in descending order, so that block 0 is handed out first.
  for (uint32_t index = total_blocks; index-- > 0;) {
    push_newest(free_, index);
  }
}

BlockPool::~BlockPool() {
  STATOR_ASSERT(used_blocks() == 0, "P2: a block handle outlives its pool");
}

BlockHandle BlockPool::allocate() {
  uint32_t index = free_.newest;
  if (index != kNone) {
    unlink(free_, index);
  } else {
    const auto victim = next_victim();
    if (!victim) {
      return {};
    }
    index = *victim;
    unlink(inactive_, index);
    ++counts_.evictions;
    offer_to_host(index);
    unregister(index);
  }
  Block& block = blocks_[index];
  block.state = State::kPartial;
  ++counts_.allocations;
  block.references = 1;
  return {*this, BlockId(index)};
}

/// The idle block that goes next. Chains are given back in reverse, so that in the list of all idle
/// blocks children stand before their parents; other orders choose among leaves.
std::optional<uint32_t> BlockPool::next_victim() {
  if (order_) {
    return order_->take();
  }
  return inactive_.oldest == kNone ? std::nullopt : std::optional(inactive_.oldest);
}

/// An idle block, if nothing stands behind it, may be evicted from now on.
void BlockPool::order(uint32_t index) {
  const Block& block = blocks_[index];
  if (order_ && block.state == State::kInactive && block.children == 0) {
    order_->insert(index, facts_[index]);
  }
}

void BlockPool::offer_to_host(uint32_t index) {
  if (host_ == nullptr) {
    return;
  }
  const uint32_t parent = blocks_[index].parent;
  host_->store(
      {.block = BlockId(index),
       .content = registry_.content(index),
       .parent = registry_.parent(index),
       .identity = registry_.identity(index),
       .parent_name = parent == kNone ? std::nullopt : std::optional(registry_.name(parent)),
       .facts = order_ ? facts_[index] : EvictionOrder::Facts{}});
}

ContentId BlockPool::content_of(uint32_t index) const {
  return index == kNone ? ContentId(0) : registry_.content(index);
}

BlockChain BlockPool::match_prefix(const SequenceBlocks& sequence) {
  BlockChain chain(*this);
  uint32_t parent = kNone;
  for (size_t i = 0; i < sequence.size(); ++i) {
    const auto found = registry_.find(content_of(parent), sequence[i]);
    if (!found) {
      break;
    }
    parent = *found;
    add_reference(parent);
    chain.ids_.push_back(BlockId(parent));
    if (order_) {
      ++facts_[parent].hits;
    }
  }
  counts_.matches_asked += sequence.size();
  counts_.matches_found += chain.size();
  return chain;
}

BlockPool::PrefixPeek BlockPool::peek_prefix(const SequenceBlocks& sequence) const {
  PrefixPeek peek;
  for (size_t i = 0; i < sequence.size(); ++i) {
    const auto found = registry_.find(peek.last, sequence[i]);
    if (!found) {
      break;
    }
    peek.last = registry_.content(*found);
    ++peek.blocks;
    peek.idle_blocks += blocks_[*found].state == State::kInactive ? 1 : 0;
  }
  return peek;
}

void BlockPool::reset() {
  for (uint32_t index = 0; index < blocks_.size(); ++index) {
    Block& block = blocks_[index];
    block.parent = kNone;
    block.children = 0;
    if (block.state == State::kInactive) {
      unlink(inactive_, index);
      make_reset(index);
    } else if (block.state == State::kRegistered) {
      block.state = State::kComplete;
    }
  }
  registry_.clear();
  if (order_) {
    order_->clear();
  }
  if (host_ != nullptr) {
    host_->clear();
  }
  if (record_ == Events::kRecord) {
    events_.emplace_back(AllCleared{});
  }
}

std::optional<BlockIdentity> BlockPool::find_content(BlockId block, ContentId content) const {
  const uint32_t index = block.value();
  if (!registry_.holds(index) || registry_.content(index) != content) {
    return std::nullopt;
  }
  return registry_.identity(index);
}

size_t BlockPool::adopt(const SequenceBlocks& sequence, size_t begin,
                        std::span<const uint32_t> slots) {
  const auto give_back = [&](size_t from) {
    for (const uint32_t slot : slots.subspan(from)) {
      host_->give_back(slot);
    }
  };
  ContentId parent;
  std::vector<uint32_t> chain;  // slots of the host tier, in the order of the sequence
  size_t adopted = 0;
  for (size_t i = 0; i < begin + slots.size(); ++i) {
    const BlockIdentity identity = sequence[i];
    const auto on_device = registry_.find(parent, identity);
    auto on_host = host_->find(parent, identity);
    if (i >= begin && (on_device || on_host)) {
      host_->give_back(slots[i - begin]);
    }
    if (!on_device && !on_host && i < begin) {
      give_back(0);  // what is in front went meanwhile
      break;
    }
    if (!on_device && !on_host) {
      const ContentId content(++last_content_);
      const auto name = i == 0 ? std::nullopt : std::optional(sequence.sequences[i - 1]);
      if (!host_->adopt(slots[i - begin], {.block = BlockId(),
                                           .content = content,
                                           .parent = parent,
                                           .identity = identity,
                                           .parent_name = name,
                                           .facts = {.depth = static_cast<uint32_t>(i),
                                                     .registered = counts_.registrations}})) {
        give_back(i - begin + 1);
        break;
      }
      ++adopted;
      on_host = slots[i - begin];
    }
    if (on_host) {
      chain.push_back(*on_host);
    }
    parent = on_device ? registry_.content(*on_device) : host_->content(*on_host);
  }
  host_->use(chain);
  return adopted;
}

std::vector<KvEventData> BlockPool::take_events() {
  return std::exchange(events_, {});
}

BlockId BlockPool::register_block(BlockId id, std::optional<BlockId> parent,
                                  const BlockIdentity& identity) {
  const uint32_t index = id.value();
  const uint32_t parent_index = parent ? parent->value() : kNone;
  Block& block = blocks_[index];
  STATOR_ASSERT(block.state == State::kPartial, "C1: a block is registered once, by its writer");
  block.state = State::kComplete;
  if (parent && blocks_[parent_index].state != State::kRegistered) {
    return id;
  }
  const ContentId behind = content_of(parent_index);
  if (const auto earlier = registry_.find(behind, identity)) {
    ++counts_.duplicates;
    add_reference(*earlier);
    release(id);
    return BlockId(*earlier);
  }
  // A copy in host memory knows what was computed behind it under the content's old id.
  const auto known = host_ == nullptr ? std::nullopt : host_->find_content(behind, identity);
  const ContentId content = known ? *known : ContentId(++last_content_);
  const ContentIndex::Inserted inserted = registry_.insert(index, content, behind, identity);
  if (inserted == ContentIndex::Inserted::kRefused) {
    return id;
  }
  block.state = State::kRegistered;
  ++counts_.registrations;
  if (keep_registrations_) {
    registrations_.push_back(
        {.block = id, .content = content, .parent = parent, .parent_content = behind});
  }
  block.parent = parent_index;
  if (order_) {
    facts_[index] = {.depth = parent ? facts_[parent_index].depth + 1 : 0,
                     .registered = counts_.registrations};
  }
  if (parent) {
    ++blocks_[parent_index].children;
  }
  if (inserted == ContentIndex::Inserted::kNewName) {
    record_stored(parent ? std::optional(registry_.name(parent_index)) : std::nullopt, identity);
  } else {
    ++collisions_total_;
  }
  return id;
}

void BlockPool::release(BlockId id) noexcept {
  const uint32_t index = id.value();
  Block& block = blocks_[index];
  STATOR_ASSERT(block.references > 0, "P2: a block is given back more often than taken");
  if (--block.references > 0) {
    return;
  }
  if (block.state == State::kRegistered) {
    block.state = State::kInactive;
    push_newest(inactive_, index);
    if (order_) {
      facts_[index].released = ++releases_;
      order(index);
    }
  } else {
    make_reset(index);
  }
}

void BlockPool::add_reference(uint32_t index) {
  Block& block = blocks_[index];
  if (block.state == State::kInactive) {
    unlink(inactive_, index);
    block.state = State::kRegistered;
    if (order_) {
      order_->erase(index);
    }
  }
  ++block.references;
}

void BlockPool::make_reset(uint32_t index) {
  blocks_[index].state = State::kReset;
  push_newest(free_, index);
}

void BlockPool::unregister(uint32_t index) {
  Block& block = blocks_[index];
  STATOR_ASSERT(block.children == 0, "P4: a block is evicted after its children");
  const blocks::SequenceHash name = registry_.name(index);
  if (registry_.erase(index)) {
    record_removed(name);
  }
  if (block.parent != kNone) {
    --blocks_[block.parent].children;
    order(std::exchange(block.parent, kNone));
  }
}

void BlockPool::push_newest(List& list, uint32_t index) {
  Block& block = blocks_[index];
  block.older = list.newest;
  block.newer = kNone;
  (list.newest == kNone ? list.oldest : blocks_[list.newest].newer) = index;
  list.newest = index;
  ++list.length;
}

void BlockPool::unlink(List& list, uint32_t index) {
  Block& block = blocks_[index];
  (block.older == kNone ? list.oldest : blocks_[block.older].newer) = block.newer;
  (block.newer == kNone ? list.newest : blocks_[block.newer].older) = block.older;
  --list.length;
}

void BlockPool::record_stored(std::optional<blocks::SequenceHash> parent,
                              const BlockIdentity& identity) {
  if (record_ == Events::kOff) {
    return;
  }
  const StoredBlock stored{.external = external(identity.sequence), .local = identity.local};
  if (parent && !events_.empty()) {
    auto* run = std::get_if<BlocksStored>(&events_.back());
    if (run != nullptr && run->blocks.back().external == external(*parent)) {
      run->blocks.push_back(stored);
      return;
    }
  }
  BlocksStored run;
  if (parent) {
    run.parent = external(*parent);
  }
  run.blocks.push_back(stored);
  events_.emplace_back(std::move(run));
}

void BlockPool::record_removed(blocks::SequenceHash hash) {
  if (record_ == Events::kOff) {
    return;
  }
  if (events_.empty() || !std::holds_alternative<BlocksRemoved>(events_.back())) {
    events_.emplace_back(BlocksRemoved{});
  }
  std::get<BlocksRemoved>(events_.back()).blocks.push_back(external(hash));
}

void BlockPool::check_invariants() const {
  uint32_t in_use = 0;
  uint32_t findable = 0;
  uint32_t inactive = 0;
  uint32_t leaves = 0;
  for (uint32_t index = 0; index < blocks_.size(); ++index) {
    const Block& block = blocks_[index];
    const bool is_findable = block.state == State::kRegistered || block.state == State::kInactive;
    const bool is_used = block.state != State::kReset && block.state != State::kInactive;
    STATOR_ASSERT((block.references > 0) == is_used, "P2: references and state disagree");
    STATOR_ASSERT(block.state != State::kPartial || block.references == 1,
                  "P2: a Partial block has one writer");
    in_use += is_used ? 1 : 0;
    findable += is_findable ? 1 : 0;
    inactive += block.state == State::kInactive ? 1 : 0;
    leaves += block.state == State::kInactive && block.children == 0 ? 1 : 0;
    if (!is_findable) {
      continue;
    }
    STATOR_ASSERT(registry_.holds(index), "P3: a findable block is in the registry");
    const auto entry = registry_.find(content_of(block.parent), registry_.identity(index));
    STATOR_ASSERT(entry == index, "P3: a findable block is found by its content");
    if (block.parent != kNone) {
      const State parent = blocks_[block.parent].state;
      STATOR_ASSERT(parent == State::kRegistered || parent == State::kInactive,
                    "P4: a findable block's parent is findable");
      STATOR_ASSERT(block.state == State::kInactive || parent == State::kRegistered,
                    "P4: a used block's parent is used");
    }
  }
  STATOR_ASSERT(findable == registry_.size(), "P3: the registry has a block twice");
  STATOR_ASSERT(inactive == inactive_.length, "P1: the idle list and the states disagree");
  STATOR_ASSERT(!order_ || leaves == order_->size(), "P1: the order and the idle leaves disagree");
  STATOR_ASSERT(in_use == used_blocks(), "P1: used + cached + free = total");
}

}  // namespace stator::kv
