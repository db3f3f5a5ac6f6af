// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/block_handle.h"

#include <utility>

#include "stator/core/assert.h"
#include "stator/kv/block_pool.h"

namespace stator::kv {

BlockHandle::BlockHandle(BlockHandle&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}

BlockHandle& BlockHandle::operator=(BlockHandle&& other) noexcept {
  BlockHandle taken(std::move(other));  // gives back what this held; safe for self-assignment
  std::swap(pool_, taken.pool_);
  std::swap(id_, taken.id_);
  return *this;
}

BlockHandle::~BlockHandle() {
  if (pool_ != nullptr) {
    pool_->release(id_);
  }
}

BlockId BlockHandle::id() const {
  STATOR_ASSERT(pool_ != nullptr, "an empty handle names no block");
  return id_;
}

BlockChain::BlockChain(BlockChain&& other) noexcept
    : pool_(other.pool_), ids_(std::exchange(other.ids_, {})) {}

BlockChain& BlockChain::operator=(BlockChain&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    ids_ = std::exchange(other.ids_, {});
  }
  return *this;
}

BlockChain::~BlockChain() {
  clear();
}

void BlockChain::append(BlockHandle block) {
  STATOR_ASSERT(block.pool_ == pool_, "a chain takes blocks of its own pool only");
  ids_.push_back(block.id_);
  block.pool_ = nullptr;
}

void BlockChain::register_block(size_t index, const BlockIdentity& identity) {
  STATOR_ASSERT(index < ids_.size(), "C1: the chain has no such block");
  const std::optional<BlockId> parent =
      index == 0 ? std::nullopt : std::optional<BlockId>(ids_[index - 1]);
  ids_[index] = pool_->register_block(ids_[index], parent, identity);
}

void BlockChain::clear() noexcept {
  for (; !ids_.empty(); ids_.pop_back()) {
    pool_->release(ids_.back());
  }
}

}  // namespace stator::kv
