// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/app/run_server.h"
#include "stator/app/settings.h"
#include "stator/app/worker_host.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"
#include "stator/frontend/endpoints.h"

namespace stator::app {

/// The operators' listener of a frontend, on a thread of its own that answers however busy the
/// shards are: what the public port has for operators (metrics, receipts, thresholds), and
///
///   GET  /ui/           the operators' page
///   GET  /requests      those that run and the newest that ended, with their timelines;
///                       ?request_id=ID for one, ?state=running or ended, ?limit=N
///   POST /routing/preview   where a request would go, and why, for ?tenant=NAME; see
///                       frontend::preview_routing()
///   GET  /tenants       budgets and what is left of them
///   GET  /config        the settings in force, secrets masked
///   GET  /profile       what each thread of the process uses; ?seconds=N
///   GET, POST /v1/loras, DELETE /v1/loras/{name}                 LoRA adapters of the workers
///   POST /engine/sleep, /engine/wake_up, /engine/reset_prefix_cache   of all its workers, or those
///                       of ?model=NAME or ?worker_id=N, in this process or others
///   POST /drain         as SIGTERM: serves on for the lame-duck time, then ends
class AdminServer {
 public:
  virtual ~AdminServer() = default;
  virtual uint16_t port() const = 0;
  /// Nothing is answered any more; before the frontend goes.
  virtual void close() = 0;
};

/// The workers whose engines operators may ask for something.
struct AdminReach {
  discovery::Discovery& discovery;                  ///< who they are, and where
  std::span<const WorkerHost::Worker> hosted = {};  ///< those of them in this process
};

/// Null where settings.admin.port is -1. `process` and what `reach` names outlive close(); the
/// object outlives the workers, which may answer late. kInvalidArgument for an address that others
/// reach while nobody needs a key, kIo for a port that is taken.
Result<std::unique_ptr<AdminServer>> start_admin_server(const Settings& settings,
                                                        FrontendProcess& process, AdminReach reach,
                                                        Clock& clock, Metrics& metrics);

/// Its own routes, beside those of frontend::list_routes().
std::vector<frontend::RouteRow> list_admin_routes();

}  // namespace stator::app
