// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/keyed_map.h"
#include "stator/core/result.h"
#include "stator/router/load_lease.h"

namespace stator::services {

struct ReservationConfig {
  Duration expiry = std::chrono::seconds(300);  ///< a request that nobody ended is freed after this
  uint32_t requests_max = 1 << 20;
};

/// Makes what tells other replicas about the bookings of one partition, by its name.
using MakeAnnouncer =
    std::function<std::shared_ptr<router::LoadAnnouncer>(const std::string& partition)>;

/// Load booked for requests that run elsewhere, by the ids their gateways chose. One thread at a
/// time.
///
/// R1  The load of an id is held from add() until remove(), or until it is `expiry` old.
class Reservations {
 public:
  explicit Reservations(ReservationConfig config) : config_(config) {}

  bool contains(std::string_view id) const { return leases_.contains(id); }
  /// kAlreadyExists for an id that is booked; kOverloaded at the bound. Expired ones go first, at
  /// most every tenth of the expiry.
  Status add(std::string_view id, router::LoadLease lease, TimePoint now);
  Status mark_prefill_completed(std::string_view id);
  Status add_output_block(std::string_view id, std::optional<double> weight);
  Status remove(std::string_view id);
  /// Gives back what is older than the expiry. Returns how many.
  size_t expire(TimePoint now);
  size_t size() const { return leases_.size(); }

 private:
  struct Booked {
    router::LoadLease lease;
    TimePoint since;
  };
  Result<Booked*> find(std::string_view id);

  const ReservationConfig config_;
  KeyedMap<Booked> leases_;
  TimePoint expired_at_{};
};

}  // namespace stator::services
