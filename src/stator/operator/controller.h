// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/kube/client.h"
#include "stator/operator/cluster_facts.h"
#include "stator/operator/graph.h"

namespace stator::op {

struct ControllerOptions {
  std::string space = {};  ///< only this namespace; empty: all
  std::string lease_space = "default";
  std::string lease_name = "stator-operator";
  std::string holder;  ///< this process in the lease
  bool elects = true;  ///< false: there is one operator only (tests)
  /// A lease that was not renewed for so long is free; its holder gives up after two thirds of it.
  Duration lease_duration = std::chrono::seconds(15);
  uint32_t threads = 4;
  /// Of several operators with a lease each: this one does the namespaces whose hash, modulo
  /// `shards`, is `shard`.
  uint32_t shard = 0;
  uint32_t shards = 1;
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

/// Runs beside the graphs' work, under the same lease: started when leading, destroyed when not.
using Companion = std::function<std::shared_ptr<void>()>;  // shared: an owner of any type

std::unique_ptr<Controller> make_controller(kube::Client& client, ClusterFacts& facts,
                                            ControllerOptions options, Clock& clock,
                                            Metrics& metrics,
                                            std::vector<Companion> companions = {});

/// Which of `shards` does a namespace.
uint32_t shard_of(std::string_view space, uint32_t shards);

}  // namespace stator::op
