// SPDX-License-Identifier: Apache-2.0
#include "stator/services/reservations.h"

#include <fmt/format.h>

namespace stator::services {

Result<Reservations::Booked*> Reservations::find(std::string_view id) {
  const auto known = leases_.find(id);
  if (known == leases_.end()) {
    return Error(Code::kNotFound, fmt::format("request '{}' is not booked (or has expired)", id));
  }
  return &known->second;
}

Status Reservations::add(std::string_view id, router::LoadLease lease, TimePoint now) {
  if (now - expired_at_ >= config_.expiry / 10) {
    expire(now);
  }
  if (leases_.contains(id)) {
    return Error(Code::kAlreadyExists, fmt::format("request '{}' is booked already", id));
  }
  if (leases_.size() >= config_.requests_max) {
    return Error(Code::kOverloaded,
                 fmt::format("more than {} requests are booked", config_.requests_max));
  }
  leases_.emplace(std::string(id), Booked{std::move(lease), now});
  return {};
}

Status Reservations::mark_prefill_completed(std::string_view id) {
  STATOR_TRY(Booked* const booked, find(id));
  booked->lease.mark_prefill_completed();
  return {};
}

Status Reservations::add_output_block(std::string_view id, std::optional<double> weight) {
  STATOR_TRY(Booked* const booked, find(id));
  booked->lease.add_output_block(weight);
  return {};
}

Status Reservations::remove(std::string_view id) {
  STATOR_TRY([[maybe_unused]] Booked* const booked, find(id));
  leases_.erase(id);
  return {};
}

size_t Reservations::expire(TimePoint now) {
  expired_at_ = now;
  const size_t before = leases_.size();
  absl::erase_if(leases_,
                 [&](const auto& entry) { return now - entry.second.since >= config_.expiry; });
  return before - leases_.size();
}

}  // namespace stator::services
