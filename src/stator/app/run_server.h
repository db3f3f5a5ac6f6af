// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "stator/access/access_service.h"
#include "stator/app/settings.h"
#include "stator/app/signals.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/discovery/discovery.h"
#include "stator/frontend/entrance.h"
#include "stator/frontend/frontend.h"
#include "stator/frontend/index_snapshot_service.h"
#include "stator/frontend/model_assets.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/replica_sync.h"
#include "stator/net/shard.h"
#include "stator/router/receipt.h"
#include "stator/session/connector.h"
#include "stator/telemetry/telemetry.h"

namespace stator::app {

/// The discovery that `settings` names; kInvalidArgument for a spelling nobody knows. A frontend
/// says so: workers' pods may wait until one knows them.
Result<std::unique_ptr<discovery::Discovery>> open_discovery(const Settings& settings,
                                                             const Clock& clock, Metrics& metrics,
                                                             bool is_frontend = false);

/// The frontend half of a process with everything it stands on, in the order it must be built and
/// taken down.
class FrontendProcess {
 public:
  static Result<std::unique_ptr<FrontendProcess>> create(const Settings& settings, Clock& clock,
                                                         Metrics& metrics);
  ~FrontendProcess();

  /// Starts the loops and looks for workers. Both arguments outlive stop().
  /// kIo when the service for other frontends cannot listen.
  Status start(discovery::Discovery& discovery, session::Connector& connector);
  /// On a port that another process serves, too: waits until all workers are reached, then accepts.
  /// Returns at once otherwise. False when a signal ended the wait.
  [[nodiscard]] bool join_port(discovery::Discovery& discovery, Signals& signals);
  /// Leaves and drains within the configured times (a second signal ends it at once), then stops.
  void drain_and_stop(Signals& signals);

  /// This process has read the folder already: the catalog need not do it again. Before start().
  void know_assets(std::string dir, std::shared_ptr<const frontend::ModelAssets> assets) {
    known_dir_ = std::move(dir);
    known_assets_ = std::move(assets);
  }
  frontend::ModelCatalog& catalog() { return *catalog_; }
  router::ReceiptLog& receipts() { return receipts_; }
  const frontend::Frontend& frontend() const { return *frontend_; }
  /// Null: nothing is asked of callers, and there is one listener.
  const frontend::Entrance* entrance() const { return entrance_.get(); }
  /// Null: everybody may everything.
  access::AccessService* access() { return access_.get(); }
  /// Null: nothing is written down of requests.
  telemetry::Telemetry* telemetry() { return telemetry_.get(); }
  net::ShardSet& shards() { return *shards_; }
  uint16_t port() const { return frontend_->port().port(); }
  bool joined() const { return frontend_->port().joined(); }
  std::string url() const;

 private:
  explicit FrontendProcess(const Settings& settings) : settings_(settings) {}

  Status open_entrance(Clock& clock, Metrics& metrics);
  Result<std::shared_ptr<const frontend::ModelAssets>> load_assets(
      const std::string& dir, const std::string& chat_template) const;

  const Settings& settings_;
  std::string known_dir_;
  std::shared_ptr<const frontend::ModelAssets> known_assets_;  // of known_dir_
  router::ReceiptLog receipts_;
  std::unique_ptr<access::AccessService> access_;
  std::unique_ptr<telemetry::Telemetry> telemetry_;  // outlives every request
  std::unique_ptr<frontend::Entrance> entrance_;
  std::unique_ptr<frontend::ReplicaSync> replicas_;            // null unless asked for
  std::unique_ptr<continuity::JournalHub> journals_;           // the same
  std::unique_ptr<frontend::IndexSnapshotService> snapshots_;  // null: none are kept
  std::unique_ptr<frontend::ModelCatalog> catalog_;
  std::unique_ptr<net::ShardSet> shards_;
  std::unique_ptr<frontend::Frontend> frontend_;
};

/// One JSON line on stdout for scripts and tests: {"ready":true,"role":…,<extra members>}.
void announce(const Settings& settings, std::string_view role, std::string_view members);

}  // namespace stator::app
