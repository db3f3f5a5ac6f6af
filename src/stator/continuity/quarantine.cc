// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/quarantine.h"

namespace stator::continuity {

void Quarantine::expire(TimePoint now) {
  while (!order_.empty() && (order_.front().until <= now || order_.size() > limits_.entries_max)) {
    const Entry oldest = order_.front();
    order_.pop_front();
    const auto found = entries_.find(oldest.fingerprint);
    if (found != entries_.end() && found->second.serial == oldest.serial) {
      entries_.erase(found);
    }
  }
}

void Quarantine::add(uint64_t fingerprint, TimePoint now) {
  const Entry entry{
      .fingerprint = fingerprint, .until = now + limits_.time, .serial = ++next_serial_};
  entries_.insert_or_assign(fingerprint, entry);
  order_.push_back(entry);
  expire(now);
}

Duration Quarantine::left(uint64_t fingerprint, TimePoint now) {
  expire(now);
  const auto found = entries_.find(fingerprint);
  return found == entries_.end() ? Duration::zero() : found->second.until - now;
}

}  // namespace stator::continuity
