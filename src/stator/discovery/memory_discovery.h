// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/metrics.h"
#include "stator/discovery/discovery.h"

namespace stator::discovery {

/// Discovery inside one process: `stator serve` and tests.
std::unique_ptr<Discovery> make_memory_discovery(Metrics& metrics);

}  // namespace stator::discovery
