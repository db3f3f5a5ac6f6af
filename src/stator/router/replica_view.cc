// SPDX-License-Identifier: Apache-2.0
#include "stator/router/replica_view.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace stator::router {

Booking booking_of(const ReplicaBooking& booking, LoadSlot slot) {
  return {.slot = slot,
          .prompt_tokens = booking.prompt_tokens,
          .block_size = booking.block_size,
          .prefill_tokens = booking.prefill_tokens,
          .prompt = booking.sequences,
          .expected_output_tokens = booking.expected_output_tokens,
          .worker = booking.worker,
          .announced = false};
}

void ReplicaView::add(const ReplicaBooking& booking) {
  const auto [at, fresh] = bookings_.try_emplace(booking.request);
  if (!fresh) {
    return;
  }
  at->second.booking = booking;
  digest_.add(booking);
  at->second.lease = book_(booking);
  if (!at->second.lease) {
    ++waiting_;
  } else if (booking.prefill_completed) {
    at->second.lease->mark_prefill_completed();
  }
}

void ReplicaView::apply(const ReplicaEvent& event) {
  sequence_ = event.sequence;
  ++counts_.events;
  if (const auto* booking = std::get_if<ReplicaBooking>(&event.data)) {
    add(*booking);
    return;
  }
  const auto* completed = std::get_if<ReplicaPrefillCompleted>(&event.data);
  const auto known = bookings_.find(
      completed != nullptr ? completed->request : std::get<ReplicaFree>(event.data).request);
  if (known == bookings_.end()) {
    return;
  }
  Held& held = known->second;
  digest_.remove(held.booking);
  if (completed == nullptr) {
    waiting_ -= held.lease ? 0 : 1;
    bookings_.erase(known);
    return;
  }
  held.booking.prefill_completed = true;
  digest_.add(held.booking);
  if (held.lease) {
    held.lease->mark_prefill_completed();
  }
}

void ReplicaView::drop_all() {
  bookings_.clear();
  waiting_ = 0;
  digest_ = {};
}

void ReplicaView::replace_all(const ReplicaUpdate& update) {
  // What stays booked keeps its lease: load must not dip while a snapshot is taken.
  FlatMap<uint64_t, Held> old = std::exchange(bookings_, {});
  waiting_ = 0;
  digest_ = {};
  for (const ReplicaBooking& booking : update.bookings) {
    const auto known = old.find(booking.request);
    if (known == old.end() || !known->second.lease ||
        known->second.booking.worker != booking.worker) {
      add(booking);
      continue;
    }
    Held& held = bookings_.emplace(booking.request, std::move(known->second)).first->second;
    held.booking = booking;
    digest_.add(booking);
    if (booking.prefill_completed) {
      held.lease->mark_prefill_completed();
    }
  }
  sequence_ = update.sequence;
  needs_snapshot_ = false;
  ++counts_.snapshots;
}

void ReplicaView::take(const ReplicaUpdate& update, TimePoint now) {
  heard_ = now;
  if (update.router_id != router_id_) {
    // Another life behind the same address: its numbers mean nothing to us.
    drop_all();
    router_id_ = update.router_id;
    sequence_ = 0;
    needs_snapshot_ = true;
  }
  if (update.is_snapshot) {
    if (needs_snapshot_ || update.sequence > sequence_) {
      replace_all(update);
    } else {
      ++counts_.stale;
    }
  } else if (!needs_snapshot_) {
    for (const ReplicaEvent& event : update.events) {
      if (event.sequence <= sequence_) {
        ++counts_.stale;
      } else if (event.sequence == sequence_ + 1) {
        apply(event);
      } else {
        ++counts_.gaps;
        needs_snapshot_ = true;
        return;
      }
    }
  }
  if (!needs_snapshot_ && sequence_ == update.sequence && digest_ != update.digest) {
    ++counts_.divergences;
    needs_snapshot_ = true;
  }
}

void ReplicaView::place_waiting() {
  if (waiting_ == 0) {
    return;
  }
  std::vector<uint64_t> requests;
  for (const auto& [request, held] : bookings_) {
    if (!held.lease) {
      requests.push_back(request);
    }
  }
  std::ranges::sort(requests);  // equal runs book equally
  for (const uint64_t request : requests) {
    Held& held = bookings_.at(request);
    held.lease = book_(held.booking);
    if (held.lease) {
      --waiting_;
      if (held.booking.prefill_completed) {
        held.lease->mark_prefill_completed();
      }
    }
  }
}

void ReplicaView::expire(TimePoint now) {
  if (!bookings_.empty() && silent_for(now) >= expiry_) {
    drop_all();
    needs_snapshot_ = true;
    ++counts_.expired;
  }
}

}  // namespace stator::router
