// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "stator/core/clock.h"
#include "stator/kube/client.h"

namespace stator::kube {

/// "2026-01-02T03:04:05.000006Z" and "…05Z".
std::string rfc3339_micro(WallTime time);
std::string rfc3339(WallTime time);

struct LeaseConfig {
  ObjectName name;
  std::string holder;  ///< this process, unique
  Duration duration = std::chrono::seconds(15);
  Duration renew_limit =
      std::chrono::seconds(10);  ///< without a renewal for so long we lead no more
};

/// What one candidate has seen of a Lease, and what it should do. Pure: clocks are the caller's.
/// Another's lease is over when our own clock has seen the same (holder, renewTime) for `duration`.
class LeaseView {
 public:
  explicit LeaseView(LeaseConfig config) : config_(std::move(config)) {}

  /// The Lease as read; null when there is none. Returns the Lease to write (create or replace), or
  /// null while another holds it.
  json::Value next(const json::Value& stored, TimePoint now, WallTime wall);
  void on_written(TimePoint now);
  bool leads(TimePoint now) const;
  /// The Lease that gives it up.
  json::Value released(const json::Value& stored) const;

 private:
  LeaseConfig config_;
  std::string seen_;  ///< holder and renewTime
  TimePoint seen_at_{};
  TimePoint renewed_at_{};
  bool held_ = false;
};

}  // namespace stator::kube
