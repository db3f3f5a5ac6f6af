// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "stator/cli/run_server.h"
#include "stator/cli/settings.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/frontend/endpoints.h"

namespace stator::cli {

/// The operators' listener of a frontend, on a thread of its own that answers however busy the
/// shards are: what the public port has for operators (metrics, receipts, thresholds), and
///
///   GET  /ui/           the operators' page
///   GET  /requests      the newest that ended, with their timelines; ?request_id=ID for one
///   GET  /tenants       budgets and what is left of them
///   GET  /config        the settings in force, secrets masked
///   POST /drain         as SIGTERM: serves on for the lame-duck time, then ends
class AdminServer {
 public:
  virtual ~AdminServer() = default;
  virtual uint16_t port() const = 0;
  /// Nothing is answered any more; before the frontend goes.
  virtual void close() = 0;
};

/// Null where settings.admin.port is -1. `process` outlives close(). kInvalidArgument for an
/// address that others reach while nobody needs a key, kIo for a port that is taken.
Result<std::unique_ptr<AdminServer>> start_admin_server(const Settings& settings,
                                                        FrontendProcess& process, Clock& clock,
                                                        Metrics& metrics);

/// Its own routes, beside those of frontend::list_routes().
std::vector<frontend::RouteRow> list_admin_routes();

}  // namespace stator::cli
