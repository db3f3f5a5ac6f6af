// SPDX-License-Identifier: Apache-2.0
#include "stator/net/byte_budget.h"

#include <algorithm>
#include <numeric>

#include "stator/core/assert.h"

namespace stator::net {
namespace {

constexpr size_t kReserveFraction = 8;

size_t charge_of(size_t bytes) {
  constexpr size_t kStep = ByteBudget::kFreeBytes;
  return bytes <= kStep ? 0 : (bytes + kStep - 1) / kStep * kStep;
}

}  // namespace

ByteBudget::ByteBudget(std::string_view name, size_t limit_bytes, Metrics& metrics)
    : limit_(limit_bytes),
      used_gauge_(metrics.gauge("stator_budget_bytes",
                                "Bytes that clients make this process keep, by budget.",
                                {{"budget", std::string(name)}})),
      refused_(metrics.counter("stator_budget_refused_total",
                               "Requests refused and clients dropped because a budget was full.",
                               {{"budget", std::string(name)}})) {
  metrics
      .gauge("stator_budget_limit_bytes", "The most there may be of them.",
             {{"budget", std::string(name)}})
      .set(static_cast<double>(limit_bytes));
}

bool ByteBudget::full() const {
  return used() + kFreeBytes > limit_ - limit_ / kReserveFraction;
}

size_t ByteBudget::excess() const {
  const size_t now = used();
  return now > limit_ ? now - limit_ : 0;
}

size_t ByteBudget::fair_share() const {
  const size_t holders = std::max<size_t>(1, holders_.load(std::memory_order_relaxed));
  return std::max(kSmallBytes, used() / holders);
}

void ByteBudget::count_refusal() {
  refusals_.fetch_add(1, std::memory_order_relaxed);
  refused_.add();
}

bool ByteBudget::try_charge(size_t from, size_t to) {
  const size_t limit = to <= kSmallBytes ? limit_ : limit_ - limit_ / kReserveFraction;
  size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (used - from + to > limit) {
      return false;
    }
  } while (!used_.compare_exchange_weak(used, used - from + to, std::memory_order_relaxed));
  note_holder(from, to);
  return true;
}

void ByteBudget::charge(size_t from, size_t to) {
  // Unsigned arithmetic: the sum is right whichever is larger.
  const size_t before = used_.fetch_add(to - from, std::memory_order_relaxed);
  STATOR_ASSERT(before >= from, "B1: nobody gives back more than he took");
  note_holder(from, to);
}

void ByteBudget::note_holder(size_t from, size_t to) {
  const bool was = from > kSmallBytes;
  const bool is = to > kSmallBytes;
  if (was != is) {
    holders_.fetch_add(is ? 1 : static_cast<size_t>(-1), std::memory_order_relaxed);
  }
  used_gauge_.add(static_cast<double>(to) - static_cast<double>(from));
}

ByteLease& ByteLease::operator=(ByteLease&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = other.budget_;
    charged_ = std::exchange(other.charged_, 0);
  }
  return *this;
}

bool ByteLease::try_resize(size_t bytes) {
  const size_t wanted = charge_of(bytes);
  if (wanted > charged_ && budget_ != nullptr && !budget_->try_charge(charged_, wanted)) {
    return false;
  }
  if (wanted < charged_) {
    resize(bytes);
  } else if (budget_ != nullptr) {
    charged_ = wanted;
  }
  return true;
}

void ByteLease::resize(size_t bytes) {
  const size_t wanted = charge_of(bytes);
  if (budget_ != nullptr && wanted != charged_) {
    budget_->charge(charged_, wanted);
    charged_ = wanted;
  }
}

std::vector<size_t> choose_to_shed(std::span<const Holding> holdings, size_t wanted,
                                   size_t share_bytes) {
  std::vector<size_t> order(holdings.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return holdings[i].bytes < share_bytes; });
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return holdings[a].bytes != holdings[b].bytes ? holdings[a].bytes > holdings[b].bytes
                                                  : holdings[a].since > holdings[b].since;
  });
  size_t freed = 0;
  size_t count = 0;
  while (count < order.size() && freed < wanted) {
    freed += holdings[order[count++]].bytes;
  }
  order.resize(count);
  return order;
}

}  // namespace stator::net
