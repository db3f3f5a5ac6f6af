// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/app/invocation.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/discovery/discovery.h"
#include "stator/kv_events/nats_connection.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/planner/planner_config.h"
#include "stator/scaling/planner_service.h"
#include "stator/services/service_api.h"

namespace stator::app {

/// What an engine can do at once, for the planner's model of it.
struct EngineLimits {
  double max_num_batched_tokens = 8192;
  double max_num_seqs = 256;
  double max_kv_tokens = 1'048'576;
  double block_size = 16;
};

/// The options of `stator planner` that say how to decide, over a file of --planner-config.
Result<planner::PlannerConfig> read_planner_config(const Invocation& invocation,
                                                   const EngineLimits& limits,
                                                   planner::PlannerConfig defaults = {});
/// Workers that are ready, as discovery tells.
std::function<std::optional<scaling::FleetCount>()> count_by(discovery::Discovery& discovery);

/// GET /planner, /, /metrics, /health, GET and PATCH /v1/min-endpoints of a running planner.
class PlannerServer {
 public:
  PlannerServer(scaling::PlannerService& planner, Clock& clock, Metrics& metrics);
  /// Port 0: any free one.
  Status open(const std::string& host, uint16_t port, Metrics& metrics);
  void close();
  uint16_t port() const { return servers_.front()->port(); }

 private:
  services::ServiceApi api_;
  net::ShardSet shards_;
  std::vector<std::unique_ptr<net::HttpServer>> servers_;
};

/// Load of the past into `config.past`, and the predictor chosen by it; `trace` names it.
using WarmUp = std::function<Status(const std::string& trace, planner::PlannerConfig& config)>;
/// `stator planner` on a live fleet, until it is told to end.
Status run_live_planner(Invocation& invocation, const WarmUp& warm_up);

/// Of `stator planner`, and those of them that `stator serve --planner` has.
std::vector<CommandOption> planner_options();
std::vector<CommandOption> scaled_serve_options();

}  // namespace stator::app
