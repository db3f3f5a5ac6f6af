// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/router/replicas/replica_hub.h"
#include "stator/services/indexer_api.h"
#include "stator/services/service_api.h"

namespace stator::services {

/// Adds /replica_sync/register_peer, /replica_sync/deregister_peer and /replica_sync/peers. Without
/// a hub registering is kInvalidArgument. Both arguments outlive the api; `peers` takes tcp://
/// only.
void add_replica_endpoints(ServiceApi& api, PeerList& peers, bool has_hub);

/// The peers as the hub asks them: "tcp://host:port" without its scheme.
std::vector<router::ReplicaHub::Peer> replica_peers(const PeerList& peers);

}  // namespace stator::services
