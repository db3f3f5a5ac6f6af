// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/replica_sync.h"

#include <utility>
#include <vector>

namespace stator::frontend {
namespace {

constexpr const char* kComponent = "frontend";
constexpr const char* kEndpoint = "replica_sync";

std::vector<router::ReplicaHub::Peer> find_peers(discovery::Discovery& discovery) {
  std::vector<router::ReplicaHub::Peer> peers;
  for (const discovery::InstanceRecord& record :
       discovery.list({.component = kComponent, .endpoint = kEndpoint})) {
    peers.push_back({record.key.worker.value(), record.address});
  }
  return peers;
}

}  // namespace

ReplicaSync::ReplicaSync(const router::ReplicaConfig& config, std::optional<net::TlsFiles> tls,
                         const Clock& clock, Metrics& metrics)
    : clock_(clock), hub_(router::ReplicaHub::create(config, std::move(tls), clock, metrics)) {}

Status ReplicaSync::start(ModelCatalog& catalog, discovery::Discovery& discovery) {
  STATOR_CHECK(hub_->listen(), "router.replica_sync_host and router.replica_sync_port");
  discovery::InstanceRecord record;
  record.key = {"default", kComponent, kEndpoint, WorkerId(hub_->router_id())};
  record.incarnation =
      Incarnation(static_cast<uint64_t>(clock_.wall_now().time_since_epoch().count()));
  record.address = hub_->address();
  record.started_at_ms = unix_seconds(clock_.wall_now()) * 1000;
  STATOR_TRY(registration_, discovery.register_instance(record));
  hub_->start(
      {.book = [&catalog](const auto& booking) { return catalog.book_for_replica(booking); },
       .peers = [&discovery] { return find_peers(discovery); },
       .on_stale =
           [&catalog](bool stale) {
             for (const auto& model : catalog.list_ready()) {
               model->router->set_load_stale(stale);
               model->prefill->prefill().set_load_stale(stale);
             }
           }});
  return {};
}

void ReplicaSync::stop() {
  registration_.reset();
  hub_->stop();
}

}  // namespace stator::frontend
