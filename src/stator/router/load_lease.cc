// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load_lease.h"

#include <utility>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

void give_back(std::atomic<int64_t>& counter, int64_t amount) noexcept {
  const int64_t before = counter.fetch_sub(amount, std::memory_order_relaxed);
  STATOR_ASSERT(before >= amount, "L1: a worker's load dropped below what its leases hold");
}

}  // namespace

LoadLease::LoadLease(std::shared_ptr<WorkerLoad> load, Amount amount) noexcept
    : load_(std::move(load)), amount_(amount) {
  load_->requests.fetch_add(1, std::memory_order_relaxed);
  load_->prefill_tokens.fetch_add(amount_.prefill_tokens, std::memory_order_relaxed);
  load_->blocks.fetch_add(amount_.blocks, std::memory_order_relaxed);
}

LoadLease::LoadLease(LoadLease&& other) noexcept
    : load_(std::move(other.load_)), amount_(std::exchange(other.amount_, {})) {}

LoadLease& LoadLease::operator=(LoadLease&& other) noexcept {
  if (this != &other) {
    release();
    load_ = std::move(other.load_);
    amount_ = std::exchange(other.amount_, {});
  }
  return *this;
}

LoadLease::~LoadLease() {
  release();
}

void LoadLease::mark_prefill_completed() noexcept {
  if (load_ != nullptr) {
    give_back(load_->prefill_tokens, std::exchange(amount_.prefill_tokens, 0));
  }
}

void LoadLease::add_blocks(int64_t count) noexcept {
  if (load_ != nullptr) {
    load_->blocks.fetch_add(count, std::memory_order_relaxed);
    amount_.blocks += count;
  }
}

void LoadLease::release() noexcept {
  if (load_ == nullptr) {
    return;
  }
  give_back(load_->prefill_tokens, amount_.prefill_tokens);
  give_back(load_->blocks, amount_.blocks);
  give_back(load_->requests, 1);
  load_.reset();
  amount_ = {};
}

}  // namespace stator::router
