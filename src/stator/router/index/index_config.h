// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"

namespace stator::router {

struct IndexConfig {
  std::string kind = "chain";  ///< "chain": from the workers' events; "ttl": from our own decisions
  uint64_t bytes_max = 1ULL << 30;
  uint64_t tier_blocks_max = 4ULL << 20;  ///< (block, holder) pairs below the device
  Duration ttl = std::chrono::seconds(120);
  uint32_t ttl_blocks_max = 31'250;  ///< per worker, of "ttl"
  Duration predicted_ttl{};          ///< of our decisions beside events; 0 = not kept
  std::string snapshot_path;  ///< where frontends keep the index over a restart; empty = nowhere
  Duration snapshot_interval = std::chrono::seconds(60);
  Duration snapshot_grace = std::chrono::seconds(60);  ///< for workers of a snapshot to come back
};

/// Declares the index' settings.
void describe(ConfigSchema& schema, IndexConfig& config);

}  // namespace stator::router
