// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"

namespace stator::net {

/// How many bytes of one kind clients may make this process keep, all shards together: request
/// bodies on their way in, answers being collected, output that clients have not taken yet.
///
///   ByteBudget bodies("request_bodies", 1 << 30, metrics);
///   ByteLease lease(bodies);
///   if (!lease.try_resize(body.size())) { …refuse, or make room… }
///
/// B1  used() is the sum of what its leases are charged; a lease gives back in its destructor.
/// B2  try_resize() never lifts used() above limit_bytes(). The last eighth is for leases of up to
///     `kSmallBytes`, so that small requests get through while large ones fill the rest.
/// B3  Up to `kFreeBytes` a lease is not charged at all and costs no shared write; beyond, it is
///     charged in whole steps of that size.
///
/// Who has to go when it is full is fair_share() and choose_to_shed(). Thread-safe.
class ByteBudget {
 public:
  static constexpr size_t kFreeBytes = size_t{16} << 10;
  static constexpr size_t kSmallBytes = size_t{64} << 10;

  /// `name` labels the metrics stator_budget_bytes, …_limit_bytes and stator_budget_refused_total.
  /// `metrics` outlives it.
  ByteBudget(std::string_view name, size_t limit_bytes, Metrics& metrics);
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  size_t limit_bytes() const { return limit_; }
  size_t used() const { return used_.load(std::memory_order_relaxed); }
  /// A large lease gets no more.
  bool full() const;
  /// By how much leases that were not asked (resize()) have gone beyond the limit.
  size_t excess() const;
  /// What each holder of more than `kSmallBytes` holds on average. One that holds less is never
  /// made to go for others, and there is always one that holds as much.
  size_t fair_share() const;
  /// Counts something that had to go, or was not let in, for lack of room.
  void count_refusal();
  /// How often that happened; shards compare it to see whether others want room.
  size_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

 private:
  friend class ByteLease;
  bool try_charge(size_t from, size_t to);
  void charge(size_t from, size_t to);
  void note_holder(size_t from, size_t to);

  const size_t limit_;
  std::atomic<size_t> used_{0};
  std::atomic<size_t> holders_{0};  // of more than kSmallBytes
  std::atomic<size_t> refusals_{0};
  Gauge used_gauge_;
  Counter refused_;
};

/// One holder's part of a budget, which outlives it. Move-only; one thread at a time. A
/// default-made one has no budget: it takes any number.
class ByteLease {
 public:
  ByteLease() = default;
  explicit ByteLease(ByteBudget& budget) : budget_(&budget) {}
  ByteLease(ByteLease&& other) noexcept
      : budget_(other.budget_), charged_(std::exchange(other.charged_, 0)) {}
  ByteLease& operator=(ByteLease&& other) noexcept;
  ~ByteLease() { release(); }

  /// From now on `bytes` are held. False, and nothing changes, when that is more than before and
  /// there is no room (B2).
  bool try_resize(size_t bytes);
  /// The same for bytes that are there already: never fails, may leave an excess().
  void resize(size_t bytes);
  void release() { resize(0); }
  /// What it is charged (B3).
  size_t charged() const { return charged_; }

 private:
  ByteBudget* budget_ = nullptr;
  size_t charged_ = 0;
};

/// What one holder holds, and since when.
struct Holding {
  size_t bytes = 0;
  TimePoint since;
};

/// Who has to go so that `wanted` bytes become free: the largest first, of equal ones the one that
/// came last; nobody with fewer than `share_bytes`. Indices into `holdings`; may free less than
/// `wanted`.
std::vector<size_t> choose_to_shed(std::span<const Holding> holdings, size_t wanted,
                                   size_t share_bytes);

}  // namespace stator::net
