// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/metrics.h"
#include "stator/runtime/connector.h"
#include "stator/runtime/virtual/virtual_network.h"

namespace stator::runtime {

/// Reaches the workers of a VirtualNetwork from one of its nodes. Addresses in records are names of
/// nodes. `network` and `metrics` outlive the result and all it made.
std::unique_ptr<Connector> make_virtual_connector(VirtualNetwork& network, NodeId node,
                                                  Metrics& metrics);

}  // namespace stator::runtime
