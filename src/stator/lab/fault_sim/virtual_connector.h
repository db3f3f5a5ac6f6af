// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/metrics.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/session/connector.h"

namespace stator::fault_sim {

/// Reaches the workers of a VirtualNetwork from one of its nodes. Addresses in records are names of
/// nodes. `network` and `metrics` outlive the result and all it made.
std::unique_ptr<session::Connector> make_virtual_connector(VirtualNetwork& network, NodeId node,
                                                           Metrics& metrics);

}  // namespace stator::fault_sim
