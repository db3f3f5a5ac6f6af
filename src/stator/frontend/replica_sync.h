// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/discovery/discovery.h"
#include "stator/frontend/model_catalog.h"
#include "stator/router/replicas/replica_hub.h"

namespace stator::frontend {

/// Frontends that find each other through discovery (component "frontend", endpoint "replica_sync")
/// and tell each other what their routers booked. See runtime/replica_hub.h. Main thread.
class ReplicaSync {
 public:
  ReplicaSync(const router::ReplicaConfig& config, std::optional<net::TlsFiles> tls,
              const Clock& clock, Metrics& metrics);
  ~ReplicaSync() { stop(); }
  ReplicaSync(const ReplicaSync&) = delete;
  ReplicaSync& operator=(const ReplicaSync&) = delete;

  std::shared_ptr<router::LoadAnnouncer> announcer(const std::string& model) {
    return hub_->announcer(model);
  }
  /// kIo when the port cannot be bound or a TLS file cannot be read. Both arguments outlive stop().
  Status start(ModelCatalog& catalog, discovery::Discovery& discovery);
  /// Idempotent.
  void stop();

 private:
  const Clock& clock_;
  std::unique_ptr<router::ReplicaHub> hub_;
  std::unique_ptr<discovery::Registration> registration_;
};

}  // namespace stator::frontend
