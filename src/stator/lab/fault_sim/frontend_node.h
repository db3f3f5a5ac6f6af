// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/shard_service.h"
#include "stator/lab/fault_sim/virtual_client.h"
#include "stator/lab/fault_sim/virtual_journals.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/lab/fault_sim/virtual_plane.h"
#include "stator/lab/fault_sim/virtual_replicas.h"
#include "stator/lab/fault_sim/virtual_store.h"
#include "stator/net/compute_pool.h"
#include "stator/net/virtual_time.h"
#include "stator/router/receipt.h"

namespace stator::fault_sim {

/// One life of a frontend process with one shard: production's own, on virtual time, but for the
/// HTTP connections, discovery's store and the carrier of sessions.
class FrontendNode {
 public:
  struct Machine {
    net::VirtualTime& time;
    VirtualNetwork& network;
    VirtualStore& store;
    NodeId node;
    VirtualJournals* journals;  ///< null: streams end with their frontend
    VirtualReplicas* replicas;  ///< null: routers do not hear of each other
    VirtualPlane* plane;        ///< null: KV events come on streams
  };
  struct Settings {
    frontend::FrontendConfig config;
    router::RouterConfig router;
    discovery::ModelCard card;
    std::shared_ptr<const frontend::ModelAssets> assets;
  };
  FrontendNode(Machine machine, const Settings& settings);
  FrontendNode(const FrontendNode&) = delete;
  FrontendNode& operator=(const FrontendNode&) = delete;
  ~FrontendNode();

  net::Shard& shard() { return shard_; }
  void send(VirtualClient& client);
  void leave(VirtualClient& client);

  /// Whether requests are sent to it. While it is young it is as /health says at this moment: if
  /// all leases were lost just before, it may know nobody but a worker that is about to die. Later
  /// on it stays ready, so that whoever forgets its workers is found out.
  bool ready();
  size_t active() const { return service_->active(); }
  int64_t leases() const { return catalog_.active_requests(); }
  size_t waiting() const { return catalog_.waiting_requests(); }
  std::vector<WorkerId> listed();    ///< in discovery's view, sorted
  std::vector<WorkerId> routable();  ///< with a session, sorted
  /// Null where routers do not hear of each other.
  const VirtualReplicaHub* replicas() const { return replicas_.get(); }
  /// KV blocks that the index believes workers to hold.
  uint64_t indexed_blocks();
  /// Sum over the series of a metric.
  double metric(std::string_view name) const;

 private:
  const Machine machine_;
  Metrics metrics_;
  const frontend::FrontendConfig config_;
  router::ReceiptLog receipts_{64};
  std::unique_ptr<VirtualReplicaHub> replicas_;
  frontend::ModelCatalog catalog_;
  frontend::FleetService fleet_;
  net::ComputePool compute_;
  frontend::PromptEncoder encoder_;
  std::atomic<frontend::Stage> stage_{frontend::Stage::kServing};
  const TimePoint born_;
  bool ready_ = false;
  VirtualDiscovery discovery_;
  std::unique_ptr<session::Connector> connector_;
  net::Shard shard_;
  std::unique_ptr<VirtualJournalHub> journals_;
  std::unique_ptr<frontend::ShardService> service_;
};

}  // namespace stator::fault_sim
