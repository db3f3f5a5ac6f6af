// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/router/load_lease.h"
#include "stator/router/replica_log.h"

namespace stator::router {

/// How another router's request is booked here: neither told on nor learned from. Points into
/// `booking`.
Booking booking_of(const ReplicaBooking& booking, LoadSlot slot);

/// The receiving side: one other router's bookings as load of ours. A pure core, one thread at a
/// time. Messages may come late, twice, in another order or not at all.
///
/// V1  After an update was taken whose events reach its sequence, the digests are equal, or the
///     next request is for a snapshot.
/// V2  A booking's load is held while the other router says so, and at most `expiry` after its last
///     word.
class ReplicaView {
 public:
  /// Books a replica's request here; nothing when its worker is not known (yet).
  using Book = std::function<std::optional<LoadLease>(const ReplicaBooking& booking)>;

  struct Counts {
    uint64_t events = 0;       ///< applied
    uint64_t stale = 0;        ///< had them already
    uint64_t gaps = 0;         ///< something before them was missing
    uint64_t snapshots = 0;    ///< taken
    uint64_t divergences = 0;  ///< the digest told otherwise
    uint64_t expired = 0;      ///< times everything was given back because the other is silent
  };

  ReplicaView(Book book, Duration expiry) : book_(std::move(book)), expiry_(expiry) {}

  /// What to ask the other router for: the last event we have. Beyond any sequence when only a
  /// snapshot will do.
  uint64_t next_request() const { return needs_snapshot_ ? UINT64_MAX : sequence_; }

  void take(const ReplicaUpdate& update, TimePoint now);
  /// Tries again those whose worker was not known. Cheap when there are none.
  void place_waiting();
  /// Gives everything back when the other has said nothing for `expiry`.
  void expire(TimePoint now);

  size_t size() const { return bookings_.size(); }
  /// Of them, not booked because their worker is not known.
  size_t waiting() const { return waiting_; }
  Duration silent_for(TimePoint now) const { return now - heard_; }
  const Counts& counts() const { return counts_; }

 private:
  struct Held {
    ReplicaBooking booking;
    std::optional<LoadLease> lease;
  };
  void add(const ReplicaBooking& booking);
  void apply(const ReplicaEvent& event);
  void drop_all();
  void replace_all(const ReplicaUpdate& update);

  const Book book_;
  const Duration expiry_;
  uint64_t router_id_ = 0;
  uint64_t sequence_ = 0;
  bool needs_snapshot_ = true;
  TimePoint heard_{};
  FlatMap<uint64_t, Held> bookings_;
  size_t waiting_ = 0;
  ReplicaDigest digest_;
  Counts counts_;
};

}  // namespace stator::router
