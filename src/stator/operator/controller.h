// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/kube/client.h"
#include "stator/operator/graph.h"

namespace stator::op {

struct ControllerOptions {
  std::string space = {};  ///< only this namespace; empty: all
  std::string lease_space = "default";
  std::string lease_name = "stator-operator";
  std::string holder;  ///< this process in the lease
  bool elects = true;  ///< false: there is one operator only (tests)
  uint32_t threads = 4;
  Environment environment;
};

/// Watches graphs and components and makes the cluster what they say. Decisions are plan_graph()
/// and plan_component(); this reads, writes and waits. Objects that are as they should be cost no
/// write.
class Controller {
 public:
  virtual ~Controller() = default;
  /// Works until stop(), or until the lease is lost (kUnavailable: the process should end).
  virtual Status run() = 0;
  /// From any thread.
  virtual void stop() = 0;
  /// All copies are complete.
  virtual bool is_ready() const = 0;
};

std::unique_ptr<Controller> make_controller(kube::Client& client, ControllerOptions options,
                                            Clock& clock, Metrics& metrics);

/// Whether `live` has all that `desired` says: what others added does not count.
bool covers(const json::Value& live, const json::Value& desired);

}  // namespace stator::op
