// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stator/router/worker_table.h"
#include "stator/services/indexer.h"
#include "stator/services/json_fields.h"

namespace stator::services {

/// A worker as a gateway describes it to the selection service. Fields may come one by one.
struct SelectionWorker {
  WorkerId id;
  PartitionName partition{"default", "default"};
  std::string endpoint;
  uint32_t block_size = 0;
  uint32_t dp_start = 0;
  uint32_t dp_size = 1;
  std::string kv_events_endpoint;  ///< of rank dp_start; further ranks: next ports
  std::map<uint32_t, std::string> kv_events_endpoints;  ///< by rank; win over the one above
  std::string replay_endpoint;
  uint32_t max_num_batched_tokens = 0;
  uint32_t total_kv_blocks = 0;
  std::string stable_routing_id;
  bool is_eagle = false;
  bool kv_events = true;          ///< it tells what it has cached; else that is guessed
  bool announces_itself = false;  ///< found through discovery, events included
  bool draining = false;
  std::vector<std::string> taints;
  std::map<std::string, std::string> topology;
  std::string kv_transfer_domain;
  std::string kv_transfer_enforcement;
  double kv_transfer_preferred_weight = 0;

  /// Where this rank publishes events; empty = nobody said.
  std::string events_endpoint(uint32_t rank) const;
  /// What the router looks at: topology domains count as taints.
  router::WorkerFacts facts() const;
};

/// What this service cannot do without.
struct WorkerRules {
  bool needs_events = true;
  bool needs_batched_tokens = false;  ///< thresholds are parts of it
};

/// Takes the fields that are there. kInvalidArgument names the one that is wrong; model and routing
/// group of a known worker cannot change.
Status merge(SelectionWorker& worker, const Fields& fields);

/// Why it cannot be chosen yet; empty = it can.
std::vector<std::string> missing(const SelectionWorker& worker, const WorkerRules& rules);

/// JSON with `lifecycle` and `not_schedulable_reasons`.
std::string render(const SelectionWorker& worker, const WorkerRules& rules);

}  // namespace stator::services
