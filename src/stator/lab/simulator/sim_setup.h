// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/result.h"
#include "stator/lab/simulator/cluster.h"
#include "stator/lab/simulator/planner.h"
#include "stator/lab/simulator/report.h"
#include "stator/lab/simulator/sim_config.h"
#include "stator/lab/simulator/trace_format.h"
#include "stator/lab/simulator/workload_generator.h"
#include "stator/router/router.h"

namespace stator::simulator {

/// What the parts of a simulation take, from what was said on the command line.

/// kInvalidArgument names what to change.
Result<ClusterConfig> make_cluster_config(const SimConfig& config,
                                          const router::RouterConfig& router);
/// Null when nothing is to change.
Result<std::unique_ptr<Planner>> make_planner(const SimConfig& config);
Objectives make_objectives(const SimConfig& config);
/// `name` is that of the file.
TraceOptions make_trace_options(const SimConfig& config, std::string name);
/// Without `lengths`.
WorkloadConfig make_workload_config(const SimConfig& config);

}  // namespace stator::simulator
