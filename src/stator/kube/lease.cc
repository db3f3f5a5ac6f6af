// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/lease.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace stator::kube {

using json::Value;

std::string rfc3339(WallTime time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", std::chrono::floor<std::chrono::seconds>(time));
}

std::string rfc3339_micro(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", seconds, micros);
}

Value LeaseView::next(const Value& stored, TimePoint now, WallTime wall) {
  const std::string holder(stored.text_at({"spec", "holderIdentity"}));
  const bool is_ours = holder == config_.holder;
  const std::string seen = holder + "|" + std::string(stored.text_at({"spec", "renewTime"}));
  if (seen != seen_) {
    seen_ = seen;
    seen_at_ = now;
  }
  const auto lasts = std::chrono::seconds(int_at(stored, {"spec", "leaseDurationSeconds"}, 15));
  const bool is_free = stored.is_null() || holder.empty() || now - seen_at_ >= lasts;
  if (!is_ours && !is_free) {
    held_ = false;
    return {};
  }
  Value lease = stored.is_null() ? make_object(resource_of("Lease"), config_.name) : stored;
  Value& spec = lease["spec"];
  if (!is_ours) {
    spec["acquireTime"] = rfc3339_micro(wall);
    spec["leaseTransitions"] = int_at(stored, {"spec", "leaseTransitions"}, -1) + 1;
  }
  spec["holderIdentity"] = config_.holder;
  spec["leaseDurationSeconds"] =
      std::chrono::duration_cast<std::chrono::seconds>(config_.duration).count();
  spec["renewTime"] = rfc3339_micro(wall);
  return lease;
}

void LeaseView::on_written(TimePoint now) {
  held_ = true;
  renewed_at_ = now;
}

bool LeaseView::leads(TimePoint now) const {
  return held_ && now - renewed_at_ < config_.renew_limit;
}

Value LeaseView::released(const Value& stored) const {
  Value lease = stored;
  lease["spec"]["holderIdentity"] = "";
  lease["spec"]["leaseDurationSeconds"] = 1;
  return lease;
}

}  // namespace stator::kube
