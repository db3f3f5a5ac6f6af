// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "stator/epp/pool.h"
#include "stator/services/event_feed.h"

namespace stator::epp {

/// Follows the KV events of a pool's endpoints over `feeds`, and tells the pool. `replay_port`: of
/// each endpoint, for what was missed; 0: none. Both outlive what is made here.
std::shared_ptr<EndpointEvents> follow_endpoints(services::EventFeeds& feeds, EndpointPool& pool,
                                                 uint32_t block_size, uint16_t replay_port);

}  // namespace stator::epp
