// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/kube/client.h"

namespace stator::grove {

struct GangOptions {
  std::string space =
      {};  ///< only sets of this namespace; empty: all. Nodes and pods are seen all.
  std::string holder = {};  ///< who tells events
  uint32_t threads = 2;
  /// Whether a namespace is ours, where operators share them; null: all are.
  std::function<bool(std::string_view)> wanted = {};
  std::function<bool()> has_kai = {};      ///< null: no
  std::function<bool()> has_volcano = {};  ///< null: no
};

/// Keeps PodCliqueSets: their pods, gangs and scales (plan_set), and places the gangs
/// (schedule_gangs) with the cluster's own scheduler as the one that binds. Works from the start
/// until destroyed; the client must have been stopped by then. One process at a time: who makes it
/// holds the lease.
class GangController {
 public:
  virtual ~GangController() = default;
};
std::unique_ptr<GangController> start_gang_controller(kube::Client& client, GangOptions options,
                                                      Clock& clock, Metrics& metrics);

}  // namespace stator::grove
