// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/perf/timing_model.h"
#include "stator/planner/planner_config.h"
#include "stator/scaling/connector.h"
#include "stator/scaling/pass_board.h"
#include "stator/scaling/planner_reports.h"
#include "stator/scaling/plugin_host.h"
#include "stator/scaling/source.h"

namespace stator::scaling {

struct ServiceConfig {
  planner::PlannerConfig planner;
  ObserverConfig observer;
  std::string timing;     ///< how the step model was named, for the journal
  bool advisory = false;  ///< decide, explain and export, but change nothing
  std::string journal;    ///< file for inputs and decisions, appended; empty: none
  uint64_t journal_bytes_max = 1ULL << 30;  ///< beyond, nothing more is written
  ReportConfig reports;
  uint32_t draft_tokens = 0;
  /// Where no forward passes come: the step model learns from what clients wait.
  bool learn_from_clients = false;
};

/// Who is there, as discovery knows it.
struct FleetCount {
  uint32_t prefill_ready = 0, decode_ready = 0;
  std::set<uint64_t> workers;
};

struct ServiceParts {
  const perf::TimingModel* timing = nullptr;  ///< outlives the service
  Connector* connector = nullptr;             ///< the same
  std::vector<std::unique_ptr<Source>> sources;
  std::function<std::optional<FleetCount>()> count_fleet;  ///< may be empty
  PoolTargets initial;  ///< wanted at the start, where the connector has no opinion
  bool wants_passes = false;
  std::unique_ptr<PluginHost> plugins;  ///< null: none
};

/// The smallest sizes of a fleet's pools.
struct LeastWorkers {
  bool split = false;  ///< prompts have a pool of their own
  uint32_t workers = 1;
  uint32_t prefill = 1;  ///< where split
};

/// A planner that runs: looks at the fleet, asks the core, has the connector do it, on a thread of
/// its own. What it knows is told as metrics, JSON and a page.
class PlannerService {
 public:
  /// kInvalidArgument for a configuration that validate() refuses; kIo for a journal that cannot be
  /// written. `clock` and `metrics` outlive the service.
  static Result<std::unique_ptr<PlannerService>> start(ServiceConfig config, ServiceParts parts,
                                                       const Clock& clock, Metrics& metrics);
  virtual ~PlannerService() = default;
  PlannerService(const PlannerService&) = delete;
  PlannerService& operator=(const PlannerService&) = delete;

  /// Ends the thread, then what the connector started. Idempotent.
  virtual void stop() = 0;
  /// Passes of the fleet's engines go here, from any thread.
  virtual PassBoard& board() = 0;

  // Any thread.
  virtual std::string render_json() const = 0;
  virtual std::string render_html() const = 0;
  virtual LeastWorkers least_workers() const = 0;
  /// kInvalidArgument if the budget does not allow so many.
  virtual Status set_least_workers(LeastWorkers least) = 0;

 protected:
  PlannerService() = default;
};

}  // namespace stator::scaling
