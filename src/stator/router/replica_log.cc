// SPDX-License-Identifier: Apache-2.0
#include "stator/router/replica_log.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "stator/core/hash.h"

namespace stator::router {
namespace {

uint64_t fingerprint(const ReplicaBooking& booking) {
  const std::array<uint64_t, 4> words = {booking.request, booking.worker.worker.value(),
                                         booking.worker.dp_rank,
                                         booking.prefill_completed ? 1U : 0U};
  return xxh3_64(std::string_view(reinterpret_cast<const char*>(words.data()), sizeof(words)));
}

}  // namespace

void ReplicaDigest::add(const ReplicaBooking& booking) {
  ++count;
  prefill_tokens += booking.prefill_completed ? 0 : booking.prefill_tokens;
  checksum += fingerprint(booking);
}

void ReplicaDigest::remove(const ReplicaBooking& booking) {
  --count;
  prefill_tokens -= booking.prefill_completed ? 0 : booking.prefill_tokens;
  checksum -= fingerprint(booking);
}

size_t ReplicaLog::hashes_of(const ReplicaEvent& event) {
  const auto* booking = std::get_if<ReplicaBooking>(&event.data);
  return booking == nullptr ? 0 : booking->sequences.size();
}

void ReplicaLog::append(decltype(ReplicaEvent::data) data) {
  ring_.push_back({++sequence_, std::move(data)});
  ring_hashes_ += hashes_of(ring_.back());
  while (ring_.size() > limits_.events_max || ring_hashes_ > limits_.hashes_max) {
    ring_hashes_ -= hashes_of(ring_.front());
    ring_.pop_front();
  }
}

uint64_t ReplicaLog::add(ReplicaBooking booking) {
  const size_t hashes = booking.sequences.size();
  if (live_.size() >= limits_.bookings_max || hashes > limits_.hashes_max - live_hashes_) {
    return 0;
  }
  live_hashes_ += hashes;
  booking.request = next_request_++;
  digest_.add(booking);
  append(booking);
  const uint64_t request = booking.request;
  live_.emplace(request, std::move(booking));
  return request;
}

void ReplicaLog::mark_prefill_completed(uint64_t request) {
  const auto known = live_.find(request);
  if (known == live_.end() || known->second.prefill_completed) {
    return;
  }
  digest_.remove(known->second);
  known->second.prefill_completed = true;
  digest_.add(known->second);
  append(ReplicaPrefillCompleted{request});
}

void ReplicaLog::free(uint64_t request) {
  const auto known = live_.find(request);
  if (known == live_.end()) {
    return;
  }
  digest_.remove(known->second);
  live_hashes_ -= known->second.sequences.size();
  live_.erase(known);
  append(ReplicaFree{request});
}

ReplicaUpdate ReplicaLog::read(uint64_t from_sequence) const {
  ReplicaUpdate update{.router_id = router_id_, .sequence = sequence_, .digest = digest_};
  const uint64_t oldest = sequence_ - ring_.size() + 1;
  if (from_sequence > sequence_ || from_sequence + 1 < oldest) {
    update.is_snapshot = true;
    update.bookings.reserve(live_.size());
    for (const auto& [request, booking] : live_) {
      update.bookings.push_back(booking);
    }
    std::ranges::sort(update.bookings, {}, &ReplicaBooking::request);  // equal logs read equally
    return update;
  }
  size_t hashes = 0;
  for (uint64_t next = from_sequence + 1;
       next <= sequence_ && update.events.size() < limits_.update_max; ++next) {
    const ReplicaEvent& event = ring_[next - oldest];
    hashes += hashes_of(event);
    if (hashes > limits_.update_hashes_max && !update.events.empty()) {
      break;
    }
    update.events.push_back(event);
  }
  return update;
}

}  // namespace stator::router
